"""Parts of SQL statements, and the properties that they set on Delta tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from handlers.spark.table_ref import TableRef, quoted


def listed(names: Iterable[str], alias: str = "") -> str:
    """Return columns, separated by commas."""
    before = f"{alias}." if alias else ""
    return ", ".join(before + quoted(name) for name in names)


def equal(names: Iterable[str], left: str, right: str, *, null_safe: bool = False) -> str:
    """Return the condition that two rows are equal in these columns."""
    sign = "<=>" if null_safe else "="
    return " AND ".join(f"{left}.{quoted(name)} {sign} {right}.{quoted(name)}" for name in names)


def literal(value: str) -> str:
    """Return a string as SQL writes it."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


WITHOUT_STATISTICS = ("binary", "boolean", "array", "map", "struct")
"""How column types begin by which Delta cannot cluster."""


def new_table(
    ref: TableRef,
    types: Mapping[str, str],
    columns: str,
    partition_by: Iterable[str],
    properties: Mapping[str, str],
    *,
    cluster_by: Iterable[str] = (),
) -> str:
    """Return the part after CREATE. `types`: of the columns. `columns`: with their types, empty if a query
    defines them. `partition_by`, `cluster_by`: columns that the table does not have are left out, and those
    by which Delta cannot cluster."""
    there = {name.casefold(): name for name in types}
    wanted = dict.fromkeys(name.casefold() for name in cluster_by)
    by = [one for one in wanted if one in there and not types[there[one]].startswith(WITHOUT_STATISTICS)]
    if not set(by).issubset(list(there)[:32]):  # Delta has statistics of no others by default
        properties = {"delta.dataSkippingNumIndexedCols": "-1", **properties}
    parts = [f"TABLE {ref.sql} ({columns})" if columns else f"TABLE {ref.sql}", "USING delta"]
    for kind, names in (("PARTITIONED", partition_by), ("CLUSTER", by)):
        if own := [there[name.casefold()] for name in names if name.casefold() in there]:
            parts.append(f"{kind} BY ({listed(own)})")
    if properties:
        each = (f"{literal(name)} = {literal(value)}" for name, value in properties.items())
        parts.append(f"TBLPROPERTIES ({', '.join(each)})")
    return " ".join(parts)


NAMES_MAPPED = ("delta.columnMapping.mode", "name")
MADE = {"binlane.made": "true"}
"""Marks tables that are dropped when the source drops its own. Others belong to somebody else."""
TYPES_WIDENED = ("delta.enableTypeWidening", "true")
# https://docs.delta.io/delta-column-mapping/: names with these characters need column mapping.
_SPECIAL = frozenset(" ,;{}()\n\t=")


def needs_mapping(names: Iterable[str]) -> bool:
    """Whether these column names need Delta's mapping, because Parquet does not allow them."""
    return any(_SPECIAL.intersection(name) for name in names)


def of_new_table(names: Iterable[str], configured: Mapping[str, object]) -> dict[str, str]:
    """Return the properties of a new table with these columns. `configured`: the handler's option."""
    found = dict([NAMES_MAPPED]) if needs_mapping(names) else {}
    for name, value in configured.items():
        found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found
