"""Reflect the target's tables once and cache them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from handlers.logs import get_logger
from handlers.sql.naming import check_names, exact, exact_table
from handlers.sql.target import catalogs
from handlers.sql.target.known_tables import KnownColumn, KnownTable, TableName
from handlers.sql.types.losses import losses_of
from handlers.sql.types.mysql_values import as_kept
from handlers.sql.types.postgresql_types import bit_text, hstore_text, interval_text, other_text, point_text
from handlers.sql.types.values import Kind, kind_of

log = get_logger("handlers.sql")


class KnownTables:
    """The cache of reflected tables. An entry stays until `forget`. Safe for threads."""

    def __init__(self) -> None:
        self._lock = Lock()  # guards the attributes below
        self._tables: dict[TableName, KnownTable] = {}
        self._told: set[TableName] = set()
        self._owners: set[tuple[TableName, object]] = set()
        """Common (folded) name of a table, with a source table that writes to it."""

    def get(self, connection: sa.Connection, name: TableName) -> KnownTable | None:
        """Return the table, or None if it does not exist. Raises NameUnfit."""
        with self._lock:
            known = self._tables.get(name)
        if known is not None:
            return known
        table = _reflect(connection, name)
        if table is not None:
            with self._lock:
                self._tables[name] = table
                is_first = name not in self._told
                self._told.add(name)
            if is_first and table.alike:
                log.warning("keys_look_alike", table=table.shown, columns=table.alike)
            if is_first and table.unsafe.because:
                log.warning("target_table_not_safe", table=table.shown, because=table.unsafe.because)
        return table

    def is_owned(self, name: TableName, source: object) -> bool:
        """Whether `own` has recorded this source table."""
        with self._lock:
            return (name, source) in self._owners

    def own(self, name: TableName, source: object) -> None:
        """Record that the table belongs to the source table."""
        with self._lock:
            self._owners.add((name, source))

    def forget(self, *names: TableName) -> None:
        with self._lock:
            for name in names:
                self._tables.pop(name, None)
            if names:
                self._owners.clear()


def own_name(reflected: str, dialect: str) -> str:
    """Return a column's name. SQLAlchemy returns MySQL's as SHOW CREATE TABLE escapes them."""
    return reflected.replace("``", "`") if dialect in ("mysql", "mariadb") else reflected


_EXACTLY = {
    "postgresql": '({})::text COLLATE "C"',
    "mysql": "CAST(CONVERT({} USING utf8mb4) AS BINARY)",
    "sqlite": "CAST({} AS BLOB)",
    "duckdb": "encode({})",
}

_LITE_NAME = sa.text(
    "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name = :name COLLATE NOCASE"
)
"""SQLite finds a table whose name differs in case. SQLAlchemy does not."""


def spelled(connection: sa.Connection, table: str) -> str:
    """Return the table's name as SQLAlchemy finds it."""
    is_lite = connection.dialect.name == "sqlite"
    return (is_lite and connection.scalar(_LITE_NAME, {"name": table})) or table


def _reflect(connection: sa.Connection, name: TableName) -> KnownTable | None:
    schema, table = name
    dialect = connection.dialect
    check_names(name, dialect.name)
    table = spelled(connection, table)
    inspector = sa.inspect(connection)
    quoted = dialect.identifier_preparer.format_table(exact_table(schema, table))
    if not inspector.has_table(table, schema=schema):
        return None
    defined = catalogs.definition(connection, quoted)  # first: what changes from here on is noticed
    with warnings.catch_warnings():
        # "Did not recognize type": such a column gets its values as text.
        warnings.simplefilter("ignore", sa.exc.SAWarning)
        found: list[Any] = list(inspector.get_columns(table, schema=schema))
        primary_key = tuple(inspector.get_pk_constraint(table, schema=schema)["constrained_columns"])
        uniques = [] if dialect.name == "postgresql" else catalogs.unique_keys(inspector, schema, table)
    for one in found:
        one["name"] = own_name(one["name"], dialect.name)
    primary_key = tuple(own_name(column, dialect.name) for column in primary_key)
    uniques = [[own_name(one, dialect.name) for one in columns] for columns in (primary_key, *uniques)]
    arrays: dict[str, tuple[str, str]] = {}
    alike: set[str] = set()
    if dialect.name == "duckdb":
        arrays = {one["name"]: (f"{one['declared']}[]", "") for one in found}
    elif dialect.name == "postgresql":
        plain = {"name": quoted.replace("%%", "%")}  # undo the driver's escape for a parameter
        arrays, alike, uniques = catalogs.of_postgresql(connection, plain, found)
    elif dialect.name == "sqlite":
        arrays = {
            name: (declared, "") for name, declared in catalogs.declared_types(connection, table).items()
        }
    if dialect.name != "postgresql":
        alike = catalogs.alike_columns(connection, schema, table, found)
    keys = {name for columns in (primary_key, *uniques) for name in columns}
    renewed = catalogs.renewed_columns(connection, schema, table)
    if dialect.name != "mysql":  # whose writer checks the found row itself
        uniques = [columns for columns in uniques if alike.isdisjoint(columns)]
    return KnownTable(
        name,
        quoted,
        {
            one["name"]: _column(
                one,
                dialect,
                primary_key,
                arrays.get(one["name"], ("", "")),
                is_alike=one["name"] in alike,
                is_renewed=one["name"] in renewed,
            )
            for one in found
        },
        primary_key,
        frozenset(frozenset(columns) for columns in uniques if columns),
        sorted(keys & alike),
        catalogs.unsafe(connection, schema, table, quoted),
        defined,
    )


def _column(
    found: Any,
    dialect: sa.Dialect,
    primary_key: Sequence[str],
    array: tuple[str, str],
    *,
    is_alike: bool,
    is_renewed: bool,
) -> KnownColumn:
    name, type_ = found["name"], found["type"]
    is_numbered = found.get("autoincrement") is True or bool(found.get("identity"))
    has_default = found.get("default") is not None or is_numbered
    return KnownColumn(
        name,
        dialect.identifier_preparer.quote(exact(name)),
        _kind(type_),
        dialect.name,
        type_,
        is_required=not found["nullable"] and not has_default and name not in primary_key,
        is_generated=found.get("computed") is not None,
        default="" if found.get("computed") is not None or is_numbered else _default(found, dialect.name),
        is_numbered=bool((found.get("identity") or {}).get("always")),
        array_type=array[0],
        cast=array[1],
        null_becomes=_null_becomes(found, dialect.name, primary_key),
        is_renewed=is_renewed,
        exactly=_EXACTLY[dialect.name] if is_alike else "",
        own=_own(type_, array[0], dialect.name),
        losses=losses_of(type_, dialect.name, array[0]),
    )


def _null_becomes(found: Any, dialect: str, primary_key: Sequence[str]) -> str:
    if dialect in ("mysql", "mariadb") and not found["nullable"]:
        if found.get("autoincrement") is True:
            return "the next number"
        return "the current time" if isinstance(found["type"], mysql.TIMESTAMP) else ""
    is_rowid = dialect == "sqlite" and list(primary_key) == [found["name"]]
    return "the next number" if is_rowid and isinstance(found["type"], sa.INTEGER) else ""


def _default(found: Any, dialect: str) -> str:
    if dialect != "sqlite":
        return "DEFAULT"
    return f"({found['default']})" if found.get("default") is not None else "NULL"


def _own(type_: sa.types.TypeEngine[Any], array_type: str, dialect: str) -> Callable[[Any], Any] | None:
    match dialect, type_:
        case "mysql" | "mariadb", _:
            return as_kept(type_)
        case "duckdb", postgresql.INTERVAL():
            return interval_text
        case "postgresql", postgresql.BIT():
            return partial(bit_text, length=type_.length, is_varying=type_.varying)
        case "postgresql", postgresql.HSTORE():
            return hstore_text
        case "postgresql", sa.types.NullType():
            return point_text if array_type == "point[]" else other_text
    return None


def _kind(type_: sa.types.TypeEngine[Any]) -> Kind:
    # BOOL is a number from -128 to 127 in MySQL.
    return Kind.INTEGER if isinstance(type_, mysql.TINYINT) else kind_of(type_)
