"""SQLite changes neither types nor keys of a table (https://www.sqlite.org/lang_altertable.html): a new table
takes over its rows and its name.
"""

from __future__ import annotations

from collections.abc import Mapping

from handlers.sql.ddl_target import Target, TargetTable

__all__ = ["create_like", "declared_types", "rebuild"]

_IN_BETWEEN = "_binlane_rebuilding"


def declared_types(target: Target, table: TargetTable) -> dict[str, str]:
    """Column -> its type as the table's definition spells it."""
    found = target.run(f"PRAGMA table_info({target.quote(table.name)})", is_change=False)
    return {column.name: column.type for column in found}


def create_like(target: Target, table: TargetTable, source: TargetTable) -> None:
    _create(target, table, declared_types(target, source), target.key(source))


def rebuild(
    target: Target,
    table: TargetTable,
    *,
    types: Mapping[str, str] | None = None,
    values: Mapping[str, str] | None = None,
    key: tuple[str, ...] | None = None,
    without: str | None = None,
) -> None:
    """The table with other types (column -> declared type), values (column -> expression over the old row),
    key, or without a column. What is not named stays.
    """
    old = {name: declared for name, declared in declared_types(target, table).items() if name != without}
    new = {**old, **(types or {})}
    key = target.key(table) if key is None else key
    between = TargetTable(None, _IN_BETWEEN)
    target.run(f"DROP TABLE IF EXISTS {target.ref(between)}")
    _create(target, between, new, tuple(name for name in key if name != without))
    columns = ", ".join(target.quote(name) for name in new)
    expressions = ", ".join((values or {}).get(name, target.quote(name)) for name in new)
    rows = f"SELECT {expressions} FROM {target.ref(table)} ORDER BY rowid"
    target.run(f"INSERT INTO {target.ref(between)} ({columns}) {rows}")
    target.run(f"DROP TABLE {target.ref(table)}")
    target.alter(between, f"RENAME TO {target.quote(table.name)}")


def _create(target: Target, table: TargetTable, types: Mapping[str, str], key: tuple[str, ...]) -> None:
    parts = [
        f"{target.quote(name)} {declared}" + (" NOT NULL" if name in key else "")
        for name, declared in types.items()
    ]
    if key:
        parts.append(f"PRIMARY KEY ({', '.join(target.quote(name) for name in key)})")
    target.run(f"CREATE TABLE {target.ref(table)} ({', '.join(parts)})")
