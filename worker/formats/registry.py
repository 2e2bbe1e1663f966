"""The formats by their names in the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from worker.formats.canal.format import Canal
from worker.formats.debezium.format import Debezium
from worker.formats.dts.format import DTS
from worker.formats.interface import Format
from worker.formats.maxwell.format import Maxwell
from worker.formats.own_json.format import Json

if TYPE_CHECKING:
    from worker.formats.debezium.settings import DebeziumSettings
    from worker.formats.own_json.layout import JsonLayout

__all__ = ["get", "names"]

_FORMATS: Mapping[str, Callable[[], Format]] = {
    "canal": Canal,
    "maxwell": Maxwell,
    "dts": DTS,
}


def names() -> tuple[str, ...]:
    """The formats that can be used, in the order of the documentation."""
    return ("canal", "debezium", "maxwell", "dts", "json")


def get(name: str, json_layout: JsonLayout | None = None, debezium: DebeziumSettings | None = None) -> Format:
    """A new reader of this format; `json_layout` is where records of the format json hold what, `debezium`
    what those of Debezium do not say.

    Raises KeyError with the known names for another name, ValueError for json without its layout.
    """
    if name == "json":
        if json_layout is None:
            raise ValueError("the format json needs its layout, the section json")
        return Json(json_layout)
    if name == "debezium":
        return Debezium(debezium)
    try:
        return _FORMATS[name]()
    except KeyError:
        raise KeyError(f"no format {name!r}; there are: {', '.join(names())}") from None
