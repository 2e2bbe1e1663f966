"""DuckDB changes no key of a table, drops no column before one of its key, and moves no table into another
schema (https://duckdb.org/docs/stable/sql/statements/alter_table): a new table takes over rows and name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from handlers.api import Rejected
from handlers.logs import get_logger
from handlers.sql.ddl.target import KEY_INDEX, Target, TargetTable
from handlers.sql.own_tables import REBUILDING

__all__ = ["create_like_in_duckdb", "rebuild_in_duckdb"]

log = get_logger("handlers.sql")


def create_like_in_duckdb(target: Target, table: TargetTable, source: TargetTable) -> None:
    _create(target, table, _columns(target, source), target.key(source), ())


def rebuild_in_duckdb(
    target: Target,
    table: TargetTable,
    *,
    types: Mapping[str, str] | None = None,
    values: Mapping[str, str] | None = None,
    key: tuple[str, ...] | None = None,
    without: str | None = None,
    to: TargetTable | None = None,
) -> None:
    """The table with other types (column -> type), values (column -> expression over the old row), key,
    without a column, or under the name `to`. What is not named stays: defaults, NOT NULL and unique keys, but
    for those that need a column that is gone.

    Raises Rejected for a table that has what would be lost.
    """
    lost = _lost(target, table)
    if lost:
        how = "".join(f" ({target.quote(name)} {spelled})" for name, spelled in (types or {}).items())
        raise Rejected(
            f"the target's table {table.name} has {', '.join(lost)}, which the new table that DuckDB needs "
            f"for this statement would lose; make the change yourself{how}, and the statement passes over it"
        )
    columns = [one for one in _columns(target, table) if one["name"] != without]
    for one in columns:
        one["declared"] = (types or {}).get(one["name"], one["declared"])
    key = tuple(name for name in (target.key(table) if key is None else key) if name != without)
    inspector = sa.inspect(target.connection)
    uniques = [
        one["column_names"]
        for one in inspector.get_unique_constraints(table.name, schema=table.schema)
        if without not in one["column_names"]
    ]
    between = TargetTable(table.schema if to is None else to.schema, REBUILDING)
    target.run(f"DROP TABLE IF EXISTS {target.ref(between)}")
    _create(target, between, columns, key, uniques)
    names = ", ".join(target.quote(one["name"]) for one in columns)
    given = ", ".join((values or {}).get(one["name"], target.quote(one["name"])) for one in columns)
    target.run(f"INSERT INTO {target.ref(between)} ({names}) SELECT {given} FROM {target.ref(table)}")
    target.run(f"DROP TABLE {target.ref(table)}")
    target.alter(between, f"RENAME TO {target.quote((to or table).name)}")


def _lost(target: Target, table: TargetTable) -> list[str]:
    """What the table has that `_create` does not write."""
    inspector = sa.inspect(target.connection)
    found = []
    if inspector.get_check_constraints(table.name, table.schema):
        found.append("a constraint (CHECK)")
    if inspector.get_foreign_keys(table.name, table.schema):
        found.append("a constraint (FOREIGN KEY)")
    names = [one["name"] or "" for one in inspector.get_indexes(table.name, table.schema)]
    # An index of our own is made again where it is needed.
    found += [f"the index {name}" for name in names if not name.endswith(KEY_INDEX)]
    if any("computed" in one for one in _columns(target, table)):
        found.append("computed columns")
    return found


def _columns(target: Target, table: TargetTable) -> list[dict[str, Any]]:
    found = sa.inspect(target.connection).get_columns(table.name, schema=table.schema)
    return [dict(one) for one in found]


def _create(
    target: Target,
    table: TargetTable,
    columns: Sequence[Mapping[str, Any]],
    key: Sequence[str],
    uniques: Sequence[Sequence[str]],
) -> None:
    parts = []
    for one in columns:
        is_required = one["name"] in key or not one["nullable"]
        default = "" if one["default"] is None else f" DEFAULT ({one['default']})"
        parts.append(
            f"{target.quote(one['name'])} {one['declared']}{' NOT NULL' if is_required else ''}{default}"
        )
    if key:
        parts.append(f"PRIMARY KEY ({', '.join(map(target.quote, key))})")
    parts += [f"UNIQUE ({', '.join(map(target.quote, one))})" for one in uniques]
    target.run(f"CREATE TABLE {target.ref(table)} ({', '.join(parts)})")
