"""Replace a table of SQLite or DuckDB, which cannot alter keys and some types, by a new one with its rows.
https://www.sqlite.org/lang_altertable.html, https://duckdb.org/docs/stable/sql/statements/alter_table"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from handlers.api import Rejected
from handlers.logs import get_logger
from handlers.sql.ddl.target import KEY_INDEX, Target, TargetTable
from handlers.sql.own_tables import REBUILDING

log = get_logger("handlers.sql")

_QUOTED = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`|\[[^]]*]|--[^\n]*|/\*.*?\*/""", re.DOTALL)
_LOST = re.compile(r"\b(?:CHECK|REFERENCES|COLLATE|AUTOINCREMENT|CONFLICT)\b", re.IGNORECASE)


class _Column(NamedTuple):
    name: str
    declared: str
    """Its type in the syntax of the table's definition."""
    default: str | None
    """An SQL expression."""
    is_required: bool


class _Kept(NamedTuple):
    """The parts of a table's definition that the new table must have."""

    columns: Sequence[_Column]
    uniques: Sequence[Sequence[str]]
    statements: Sequence[str]
    """Statements that create its indexes and triggers."""
    lost: Sequence[str]
    """Parts that the new table would lose."""


def declared_types(target: Target, table: TargetTable) -> dict[str, str]:
    """Return column -> type in the syntax of the table's definition."""
    return {one.name: one.declared for one in _kept(target, table).columns}


def create_like(target: Target, table: TargetTable, source: TargetTable) -> None:
    _create(target, table, _kept(target, source).columns, target.key(source), ())


def rebuild(
    target: Target,
    table: TargetTable,
    *,
    types: Mapping[str, str] | None = None,
    values: Mapping[str, str] | None = None,
    key: tuple[str, ...] | None = None,
    without: str | None = None,
    to: TargetTable | None = None,
) -> None:
    """Rebuild the table, with a new `key` or as `to`, if given. `types`: column -> declared type. `values`:
    column -> expression over the old row. Defaults, NOT NULL, unique keys, and SQLite's indexes and triggers
    stay, unless they need the dropped column (`without`).

    Raises Rejected if the table has parts that would be lost."""
    kept = _kept(target, table)
    is_sqlite = target.family == "sqlite"
    if kept.lost:
        how = "".join(f" ({target.quote(name)} {spelled})" for name, spelled in (types or {}).items())
        raise Rejected(
            f"the target's table {table.name} has {', '.join(kept.lost)}, which would be lost in the new "
            f"table that {'SQLite' if is_sqlite else 'DuckDB'} needs for this statement; make the change "
            f"yourself{how}, and the statement is then skipped"
        )
    columns = [
        one._replace(declared=(types or {}).get(one.name, one.declared))
        for one in kept.columns
        if one.name != without
    ]
    key = tuple(name for name in (target.key(table) if key is None else key) if name != without)
    new = to or table
    between = TargetTable(new.schema, REBUILDING)
    target.run(f"DROP TABLE IF EXISTS {target.ref(between)}")
    _create(target, between, columns, key, [one for one in kept.uniques if without not in one])
    names = ", ".join(target.quote(one.name) for one in columns)
    given = ", ".join((values or {}).get(one.name, target.quote(one.name)) for one in columns)
    rows = f"SELECT {given} FROM {target.ref(table)}{' ORDER BY rowid' if is_sqlite else ''}"
    target.run(f"INSERT INTO {target.ref(between)} ({names}) {rows}")
    target.run(f"DROP TABLE {target.ref(table)}")
    if is_sqlite:
        # Otherwise views and triggers that name the table, which is missing now, make the rename fail.
        target.run("PRAGMA legacy_alter_table = ON", is_change=False)
    try:
        target.alter(between, f"RENAME TO {target.quote(new.name)}")
    finally:
        if is_sqlite:
            target.run("PRAGMA legacy_alter_table = OFF", is_change=False)
    for statement in kept.statements:
        try:
            with target.connection.begin_nested():
                target.run(statement)
        except sa.exc.OperationalError as error:  # such as a missing column
            target.done.pop()
            log.warning("ddl_index_dropped", table=table.name, sql=statement, because=str(error.orig))


def _create(
    target: Target,
    table: TargetTable,
    columns: Sequence[_Column],
    key: Sequence[str],
    uniques: Sequence[Sequence[str]],
) -> None:
    parts = []
    for name, declared, default, is_required in columns:
        required = " NOT NULL" if is_required or name in key else ""
        parts.append(
            f"{target.quote(name)} {declared}{required}{'' if default is None else f' DEFAULT ({default})'}"
        )
    if key:
        parts.append(f"PRIMARY KEY ({', '.join(map(target.quote, key))})")
    parts += [f"UNIQUE ({', '.join(map(target.quote, one))})" for one in uniques]
    target.run(f"CREATE TABLE {target.ref(table)} ({', '.join(parts)})")


def _kept(target: Target, table: TargetTable) -> _Kept:
    return _in_sqlite(target, table) if target.family == "sqlite" else _in_duckdb(target, table)


def _in_sqlite(target: Target, table: TargetTable) -> _Kept:
    name = target.quote(table.name)
    created = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE"
    text = _QUOTED.sub(" ", target.connection.exec_driver_sql(created, (table.name,)).scalar_one())
    columns = target.run(f"PRAGMA table_xinfo({name})", is_change=False).all()
    indexes = target.run(f"PRAGMA index_list({name})", is_change=False).all()
    uniques = [
        [one.name for one in target.run(f"PRAGMA index_info({target.quote(index.name)})", is_change=False)]
        for index in indexes
        if index.origin == "u"
    ]
    statements = target.connection.exec_driver_sql(
        "SELECT sql FROM sqlite_master "
        "WHERE tbl_name = ? COLLATE NOCASE AND type IN ('index', 'trigger') AND sql IS NOT NULL",
        (table.name,),
    )
    lost = [word.upper() for word in _LOST.findall(text)]
    lost += ["computed columns"] if any(one.hidden for one in columns) else []
    lost += filter(None, [text.rpartition(")")[2].strip()])  # the table's options, such as STRICT
    return _Kept(
        [_Column(one.name, one.type, one.dflt_value, bool(one.notnull and not one.pk)) for one in columns],
        uniques,
        [sql for (sql,) in statements],
        list(dict.fromkeys(lost)),
    )


def _in_duckdb(target: Target, table: TargetTable) -> _Kept:
    inspector, names, key = sa.inspect(target.connection), (table.name, table.schema), target.key(table)
    columns: list[Any] = list(inspector.get_columns(*names))
    lost = ["a constraint (CHECK)"] if inspector.get_check_constraints(*names) else []
    lost += ["a constraint (FOREIGN KEY)"] if inspector.get_foreign_keys(*names) else []
    indexes = [one["name"] or "" for one in inspector.get_indexes(*names)]
    # The handler recreates its own index if it needs it.
    lost += [f"the index {name}" for name in indexes if not name.endswith(KEY_INDEX)]
    lost += ["computed columns"] if any("computed" in one for one in columns) else []
    required = {one["name"] for one in columns if not one["nullable"]}.difference(key)
    return _Kept(
        [_Column(one["name"], one["declared"], one["default"], one["name"] in required) for one in columns],
        [one["column_names"] for one in inspector.get_unique_constraints(*names)],
        (),
        lost,
    )
