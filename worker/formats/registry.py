"""The formats by their names in the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from worker.formats.canal import Canal
from worker.formats.debezium import Debezium
from worker.formats.interface import Format
from worker.formats.maxwell import Maxwell

__all__ = ["get", "names"]

_FORMATS: Mapping[str, Callable[[], Format]] = {"canal": Canal, "debezium": Debezium, "maxwell": Maxwell}


def names() -> tuple[str, ...]:
    """The formats that can be used, in the order of the documentation."""
    return tuple(_FORMATS)


def get(name: str) -> Format:
    """A new reader of this format. Raises KeyError with the known names for another name."""
    try:
        return _FORMATS[name]()
    except KeyError:
        raise KeyError(f"no format {name!r}; there are: {', '.join(_FORMATS)}") from None
