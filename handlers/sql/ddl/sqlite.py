"""SQLite changes neither types nor keys of a table (https://www.sqlite.org/lang_altertable.html): a new table
takes over its rows and its name, and what else belongs to it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from handlers.api import Rejected
from handlers.logs import get_logger
from handlers.sql.ddl.target import Target, TargetTable
from handlers.sql.own_tables import REBUILDING

__all__ = ["create_like", "declared_types", "rebuild"]

log = get_logger("handlers.sql")

_QUOTED = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`|\[[^]]*]|--[^\n]*|/\*.*?\*/""", re.DOTALL)
_LOST = re.compile(r"\b(?:CHECK|REFERENCES|COLLATE|AUTOINCREMENT|CONFLICT)\b", re.IGNORECASE)


def declared_types(target: Target, table: TargetTable) -> dict[str, str]:
    """Column -> its type as the table's definition spells it."""
    found = target.run(f"PRAGMA table_xinfo({target.quote(table.name)})", is_change=False)
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
    key, or without a column. What is not named stays: defaults, unique keys, indexes and triggers, too, but
    for those that need a column that is gone.

    Raises Rejected for a table that has what would be lost.
    """
    lost = _lost(target, table)
    if lost:
        how = "".join(f" ({target.quote(name)} {spelled})" for name, spelled in (types or {}).items())
        raise Rejected(
            f"the target's table {table.name} has {', '.join(lost)}, which the new table that SQLite needs "
            f"for this statement would lose; make the change yourself{how}, and the statement passes over it"
        )
    rest = _rest_of(target, table)
    old = {name: declared for name, declared in declared_types(target, table).items() if name != without}
    new = {**old, **(types or {})}
    key = target.key(table) if key is None else key
    between = TargetTable(None, REBUILDING)
    target.run(f"DROP TABLE IF EXISTS {target.ref(between)}")
    _create(target, between, new, tuple(name for name in key if name != without), rest)
    columns = ", ".join(target.quote(name) for name in new)
    expressions = ", ".join((values or {}).get(name, target.quote(name)) for name in new)
    rows = f"SELECT {expressions} FROM {target.ref(table)} ORDER BY rowid"
    target.run(f"INSERT INTO {target.ref(between)} ({columns}) {rows}")
    target.run(f"DROP TABLE {target.ref(table)}")
    # Else views and other tables' triggers that name the table would stop it, which is not there now.
    target.run("PRAGMA legacy_alter_table = ON", is_change=False)
    try:
        target.alter(between, f"RENAME TO {target.quote(table.name)}")
    finally:
        target.run("PRAGMA legacy_alter_table = OFF", is_change=False)
    for statement in rest.statements:
        try:
            with target.connection.begin_nested():
                target.run(statement)
        except sa.exc.OperationalError as error:  # no such column
            target.done.pop()
            log.warning("ddl_index_dropped", table=table.name, sql=statement, because=str(error.orig))


def _lost(target: Target, table: TargetTable) -> list[str]:
    """What the table has that `_create` does not write."""
    created = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?"
    text = _QUOTED.sub(" ", target.connection.exec_driver_sql(created, (table.name,)).scalar_one())
    found = [word.upper() for word in _LOST.findall(text)]
    columns = target.run(f"PRAGMA table_xinfo({target.quote(table.name)})", is_change=False)
    if any(column.hidden for column in columns):
        found.append("computed columns")
    options = text.rpartition(")")[2].strip()
    return list(dict.fromkeys([*found, options] if options else found))


@dataclass(frozen=True, slots=True)
class _Rest:
    """What a table has besides its columns' types and its key."""

    defaults: Mapping[str, str] = field(default_factory=dict)
    """Column -> expression."""
    required: Collection[str] = ()
    """Columns outside the key that are NOT NULL."""
    uniques: Sequence[tuple[str, ...]] = ()
    statements: Sequence[str] = ()
    """Of its indexes and triggers."""


def _rest_of(target: Target, table: TargetTable) -> _Rest:
    name = target.quote(table.name)
    columns = target.run(f"PRAGMA table_info({name})", is_change=False).all()
    indexes = target.run(f"PRAGMA index_list({name})", is_change=False).all()
    uniques = [
        tuple(
            one.name for one in target.run(f"PRAGMA index_info({target.quote(index.name)})", is_change=False)
        )
        for index in indexes
        if index.origin == "u"
    ]
    statements = target.connection.exec_driver_sql(
        "SELECT sql FROM sqlite_master "
        "WHERE tbl_name = ? AND type IN ('index', 'trigger') AND sql IS NOT NULL",
        (table.name,),
    )
    return _Rest(
        {one.name: one.dflt_value for one in columns if one.dflt_value is not None},
        {one.name for one in columns if one.notnull and not one.pk},
        uniques,
        [sql for (sql,) in statements],
    )


def _create(
    target: Target,
    table: TargetTable,
    types: Mapping[str, str],
    key: tuple[str, ...],
    rest: _Rest = _Rest(),
) -> None:
    parts = []
    for name, declared in types.items():
        default = f" DEFAULT ({rest.defaults[name]})" if name in rest.defaults else ""
        is_required = name in key or name in rest.required
        parts.append(f"{target.quote(name)} {declared}{' NOT NULL' if is_required else ''}{default}")
    if key:
        parts.append(f"PRIMARY KEY ({', '.join(target.quote(name) for name in key)})")
    for unique in rest.uniques:
        if types.keys() >= set(unique):
            parts.append(f"UNIQUE ({', '.join(target.quote(name) for name in unique)})")
    target.run(f"CREATE TABLE {target.ref(table)} ({', '.join(parts)})")
