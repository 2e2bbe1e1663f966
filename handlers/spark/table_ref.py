"""Where a source table's Spark table is, where its segments wait, and the SQL that names it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableRef:
    """One target table."""

    sql: str
    """Its name in a statement: delta.`/lake/shop/orders`, or `lake`.`shop`.`orders`."""
    path: str | None
    """The folder or URI of a table that is addressed by its place. None for a table in a catalog."""
    log_folder: str
    """The folder or URI of its segments. It contains the source table's name and stays when the table is
    renamed or dropped, so applied positions stay known."""
    app_id: str = "binlane"
    """The id of the transactions that record which segments of the log the table contains. It belongs to one
    log: a renamed table takes over another's rows, but not its log."""

    def __str__(self) -> str:
        return self.path or self.sql


def app_id(database: str, table: str) -> str:
    """The id of this source table's log (`TableRef.app_id`)."""
    return f"binlane:{database}.{table}"


def quoted(name: str) -> str:
    """Return a name or path as an identifier of Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def find(columns: Iterable[str], name: str) -> str | None:
    """Return the column in the table's spelling, None if absent. MySQL and Spark ignore case in names."""
    return next((one for one in columns if one.casefold() == name.casefold()), None)


def path_safe(name: str) -> str:
    """Return a database's or table's name as one path component. Different names stay different.

    Letters and digits of any script, `_`, `-` and `.` stay. Each other byte in UTF-8 becomes `!` and two
    hexadecimal digits. So does a leading dot: no name can leave its folder or be hidden in it. `%` is not
    used, because some readers of Delta tables decode such a path again.

    >>> path_safe("sp ace"), path_of("sp!20ace")
    ('sp!20ace', 'sp ace')
    """
    return re.sub(r"[^\w.\-]|^\.", lambda found: "".join(f"!{byte:02X}" for byte in found[0].encode()), name)


def path_of(safe: str) -> str:
    """Return the name from which `path_safe` made this. A text that it cannot have made stays unchanged."""
    escaped = r"(?:![0-9A-F]{2})+"
    name = re.sub(
        escaped, lambda found: bytes.fromhex(found[0].replace("!", "")).decode("utf-8", "replace"), safe
    )
    return name if path_safe(name) == safe else safe


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
    return (dict([NAMES_MAPPED]) if needs_mapping(names) else {}) | as_texts(configured)


def as_texts(configured: Mapping[str, object]) -> dict[str, str]:
    """Return configured properties as Spark, Delta and Iceberg take them."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in configured.items()
    }
