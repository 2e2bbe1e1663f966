"""Properties of Delta tables: what a new table has, and what some columns need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

NAMES_MAPPED = ("delta.columnMapping.mode", "name")
MADE = {"binlane.made": "true"}
"""Of tables that are dropped when the source drops its own; others are somebody else's."""
TYPES_WIDENED = ("delta.enableTypeWidening", "true")
# https://docs.delta.io/delta-column-mapping/: names with these need the table's columns to be mapped.
_SPECIAL = frozenset(" ,;{}()\n\t=")


def needs_mapping(names: Iterable[str]) -> bool:
    """Whether Parquet takes these names of columns only when Delta maps them."""
    return any(_SPECIAL.intersection(name) for name in names)


def of_new_table(names: Iterable[str], configured: Mapping[str, object]) -> dict[str, str]:
    """The properties of a new table with these columns. `configured`: the handler's option."""
    found = dict([NAMES_MAPPED]) if needs_mapping(names) else {}
    for name, value in configured.items():
        found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found
