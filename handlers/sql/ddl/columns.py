"""Add, drop, rename and retype columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from handlers.logs import get_logger
from handlers.mysql.ddl import Column
from handlers.mysql.ddl.values import default_value, set_in_order
from handlers.mysql.types import read_type
from handlers.sql.ddl import retyping
from handlers.sql.ddl.rebuilding import declared_types, rebuild
from handlers.sql.ddl.tables import change_key, number_rows
from handlers.sql.ddl.target import Target, TargetTable
from handlers.sql.naming import exact, exact_table

log = get_logger("handlers.sql")


def drop_column(target: Target, table: TargetTable, name: str) -> None:
    own = target.column(table, name)
    if own is None:
        return
    key = target.key(table)
    if own in key:
        change_key(target, table, [one for one in key if one != own])
    if target.is_file:
        rebuild(target, table, without=own)
    else:
        target.alter(table, f"DROP COLUMN {target.quote(own)}")


def rename_column(target: Target, table: TargetTable, name: str, new: str) -> None:
    own = target.column(table, name)
    if own is None or own == new:
        return
    if new in target.columns(table):
        # An earlier row created it. Older rows keep their values under the old name.
        log.warning("ddl_column_not_renamed", table=table.name, column=own, to=new, because="it exists")
        return
    target.alter(table, f"RENAME COLUMN {target.quote(own)} TO {target.quote(new)}")


def add_column(target: Target, table: TargetTable, column: Column, *, is_made: bool) -> None:
    """Add the column. Existing rows get the values of the source. `is_made`: see `number_rows`."""
    type_ = target.type_for(table, column.name, column.type)
    own = target.column(table, column.name)
    value = default_value(column, target.time_ms)
    if own is not None and value is not None and target.is_again and target.end is None:
        target.alter(table, f"ALTER COLUMN {target.quote(own)} SET DEFAULT NULL")
    if own is None:
        _add(target, table, column.name, type_, value)
        default = column.default
        if value is None and default is not None and default.kind != "null":
            log.warning("ddl_default_not_known", table=table.name, column=column.name, default=default.text)
    if value is not None and _sets_rows(target) and (own is None or target.is_again):
        name = target.quote(own or column.name)
        target.set_all(table, name, value, type_, f" WHERE {target.still_null(name)}")
    if column.numbered:
        number_rows(target, table, column.name, column.numbered, is_made=is_made)


def _add(target: Target, table: TargetTable, name: str, type_: sa.types.TypeEngine[Any], value: Any) -> None:
    column, spelled = target.quote(name), target.spell(type_)
    if value is None or _sets_rows(target):
        target.alter(table, f"ADD COLUMN {column} {spelled}{'' if target.family == 'duckdb' else ' NULL'}")
        return
    # A default fills existing rows in the same statement. Later rows have their own values.
    literal = target.literal(value, type_)
    # MySQL accepts a default of a text or a blob only as an expression.
    is_long = target.family == "mysql" and isinstance(type_, sa.String | sa.types._Binary | sa.JSON)
    is_long = is_long and getattr(type_, "length", None) is None
    target.alter(
        table, f"ADD COLUMN {column} {spelled} NULL DEFAULT {f'({literal})' if is_long else literal}"
    )
    target.alter(table, f"ALTER COLUMN {column} SET DEFAULT NULL")


def _sets_rows(target: Target) -> bool:
    """Return whether existing rows get a default by an UPDATE of their own."""
    return target.is_file or target.end is not None


def modify_column(target: Target, table: TargetTable, column: Column) -> None:
    """Change the column's type and convert the values of existing rows. Columns outside the key become
    nullable, independently of the source."""
    own = target.column(table, column.name)
    if own is None:
        return
    key = target.key(table)
    type_ = target.type_for(table, own, column.type)
    name, spelled = target.quote(own), target.spell(type_)
    if target.family == "mysql":
        retyping.modify_in_mysql(target, table, own, f"{spelled} {'NOT NULL' if own in key else 'NULL'}")
    elif target.family == "sqlite":
        same = declared_types(target, table)[own].upper() == spelled.upper()
        retyping.retype_in_sqlite(target, table, own, column.type, spelled, same=same)
    elif target.spell(old := target.columns(table)[own]) != spelled:
        if target.family == "duckdb":
            value = retyping.in_duckdb(name, old, type_, spelled)
            rebuild(target, table, types={own: spelled}, values={own: value})
        else:
            using = retyping.in_postgresql(name, old, type_, spelled)
            retyping.retype_in_postgresql(target, table, own, f"TYPE {spelled} USING {using}", spelled)
    if target.family in ("postgresql", "duckdb"):
        retyping.as_in_source(target, table, own, column.type)
    _respell(target, table, own, column.type, type_)


def _respell(
    target: Target, table: TargetTable, name: str, type_text: str, type_: sa.types.TypeEngine[Any]
) -> None:
    """Adjust what the target's type does not: the order of a set's labels."""
    source = read_type(type_text)
    respelled: Callable[[Any], Any]
    if source.name == "set" and isinstance(type_, postgresql.ARRAY):
        respelled = lambda value: list(set_in_order(value, source.labels))  # noqa: E731
    elif source.name == "set" and target.family == "mysql":
        respelled = lambda value: ",".join(set_in_order(value.split(","), source.labels))  # noqa: E731
    else:
        return
    renewed: list[sa.ColumnClause[Any]] = [
        sa.column(exact(one)) for one in target.renewed(table) if one != name
    ]
    held = exact_table(table.schema, table.name, sa.column(exact(name), type_), *renewed)
    column, unchanged = held.c[name], {one.name: one for one in renewed}
    for value in target.connection.scalars(sa.select(column).where(column.is_not(None)).distinct()).all():
        if respelled(value) != value:
            new = {name: respelled(value), **unchanged}
            target.connection.execute(held.update().where(column == value).values(new))
