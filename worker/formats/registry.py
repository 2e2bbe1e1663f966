"""The formats by their names in the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.formats.interface import Format

if TYPE_CHECKING:
    from worker.formats.debezium.settings import DebeziumSettings
    from worker.formats.own_json.layout import JsonLayout
    from worker.formats.schema_registry.schemas import Schemas


def names() -> tuple[str, ...]:
    """The formats that can be used, in the order of the documentation."""
    return ("canal", "debezium", "maxwell", "dts", "json")


def get(
    name: str,
    json_layout: JsonLayout | None = None,
    debezium: DebeziumSettings | None = None,
    schemas: Schemas | None = None,
) -> Format:
    """A new reader of this format; `json_layout` is where records of the format json hold what, `debezium`
    what those of Debezium do not say, `schemas` those that they name by ids.

    Raises KeyError with the known names for another name, ValueError for json without its layout."""
    # Each is imported when it is made: all of them are a tenth of what a worker imports, and it has one.
    if name == "canal":
        from worker.formats.canal.format import Canal  # noqa: PLC0415

        return Canal()
    if name == "debezium" and schemas is not None:
        from worker.formats.schema_registry.headers import debezium_with  # noqa: PLC0415

        return debezium_with(schemas, debezium)
    if name == "debezium":
        from worker.formats.debezium.format import Debezium  # noqa: PLC0415

        return Debezium(debezium)
    if name == "maxwell":
        from worker.formats.maxwell.format import Maxwell  # noqa: PLC0415

        return Maxwell()
    if name == "dts":
        from worker.formats.dts.format import DTS  # noqa: PLC0415

        return DTS()
    if name == "json":
        if json_layout is None:
            raise ValueError("the format json needs its layout, the section json")
        from worker.formats.own_json.format import Json  # noqa: PLC0415

        return Json(json_layout)
    raise KeyError(f"no format {name!r}; there are: {', '.join(names())}")
