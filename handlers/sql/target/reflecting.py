"""The target's tables, looked at once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from handlers.logs import get_logger
from handlers.sql.naming import check_names, exact, exact_table
from handlers.sql.target.known_tables import KnownColumn, KnownTable, TableName
from handlers.sql.types.duckdb_types import interval_text
from handlers.sql.types.losses import losses_of
from handlers.sql.types.mysql_values import as_kept
from handlers.sql.types.postgresql_types import bit_text, hstore_text, other_text, point_text, within_domain
from handlers.sql.types.values import Kind, kind_of

log = get_logger("handlers.sql")


class KnownTables:
    """All tables that were asked for, until something is heard that changes them."""

    def __init__(self) -> None:
        self._lock = Lock()  # guards all of them
        self._tables: dict[TableName, KnownTable] = {}
        self._told: set[TableName] = set()
        self._owners: dict[TableName, object] = {}
        """By the name that all names of a table have in common."""

    def get(self, connection: sa.Connection, name: TableName) -> KnownTable | None:
        """None: there is no such table. Raises NameUnfit."""
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
        return table

    def is_owned(self, name: TableName, owner: object) -> bool:
        """Whether `own` was told so last."""
        with self._lock:
            return self._owners.get(name) == owner

    def own(self, name: TableName, owner: object) -> None:
        """The table is known to be that of `owner`, a source table."""
        with self._lock:
            self._owners[name] = owner

    def forget(self, *names: TableName) -> None:
        with self._lock:
            for name in names:
                self._tables.pop(name, None)
            if names:
                self._owners.clear()


def own_name(reflected: str, dialect: str) -> str:
    """A column's name. SQLAlchemy gives MySQL's as SHOW CREATE TABLE escapes them."""
    return reflected.replace("``", "`") if dialect in ("mysql", "mariadb") else reflected


# As PostgreSQL names types in a cast: without length, of an array's element too (-1: bpchar, not char(1)).
# The fourth: of a domain, its type with the sizes.
_PG_TYPES = """
    SELECT a.attname, format_type(a.atttypid, -1), t.typcategory = 'A',
        format_type(t.typbasetype, t.typtypmod),
        t.typname = 'citext' OR coalesce(to_jsonb(c) ->> 'collisdeterministic', '') = 'false'
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_collation c ON c.oid = a.attcollation
    WHERE a.attrelid = CAST(:name AS regclass) AND a.attnum > 0 AND NOT a.attisdropped
"""


# Those that ON CONFLICT takes, and that find a row by its very values.
_PG_KEYS = """
    SELECT array_agg(a.attname::text) FROM pg_index i
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
    WHERE i.indrelid = CAST(:name AS regclass) AND i.indisunique AND i.indisvalid AND i.indimmediate
        AND i.indpred IS NULL AND i.indexprs IS NULL AND NOT EXISTS (
            SELECT FROM pg_collation c
            WHERE c.oid = ANY (i.indcollation) AND to_jsonb(c) ->> 'collisdeterministic' = 'false')
    GROUP BY i.indexrelid
"""
_MY_ALIKE = sa.text(
    "SELECT column_name FROM information_schema.columns WHERE table_name = :table "
    "AND table_schema = coalesce(:schema, database()) "
    "AND collation_name NOT LIKE '%nopad_bin' AND collation_name <> 'utf8mb4_0900_bin'"
)
_LITE_ALIKE = sa.text(
    "SELECT x.name FROM pragma_index_list(:table) l, pragma_index_xinfo(l.name) x "
    "WHERE l.\"unique\" AND x.key AND x.coll <> 'BINARY' AND x.name IS NOT NULL"
)
_COLLATES = {
    "sqlite": "SELECT 1 FROM sqlite_master WHERE name = :table AND upper(sql) LIKE '%COLLATE%'",
    "duckdb": "SELECT 1 FROM duckdb_tables() WHERE schema_name = :schema AND upper(sql) LIKE '%COLLATE%' "
    "AND lower(table_name) = lower(:table)",
}
_EXACTLY = {
    "postgresql": '({})::text COLLATE "C"',
    "mysql": "CAST(CONVERT({} USING utf8mb4) AS BINARY)",
    "sqlite": "CAST({} AS BLOB)",
    "duckdb": "encode({})",
}

_LITE_NAME = sa.text(
    "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name = :name COLLATE NOCASE"
)
"""SQLAlchemy does not find a table whose name differs in case, as SQLite itself does."""


def _reflect(connection: sa.Connection, name: TableName) -> KnownTable | None:
    schema, table = name
    dialect = connection.dialect
    check_names(name, dialect.name)
    if dialect.name == "sqlite":
        table = connection.scalar(_LITE_NAME, {"name": table}) or table
    inspector = sa.inspect(connection)
    quoted = dialect.identifier_preparer.format_table(exact_table(schema, table))
    try:
        with warnings.catch_warnings():
            # "Did not recognize type": such a column takes what is given, as text.
            warnings.simplefilter("ignore", sa.exc.SAWarning)
            found: list[Any] = list(inspector.get_columns(table, schema=schema))
            primary_key = tuple(inspector.get_pk_constraint(table, schema=schema)["constrained_columns"])
            uniques = [] if dialect.name == "postgresql" else _keys(inspector, schema, table)
    except sa.exc.NoSuchTableError:
        return None
    if not found:
        return None
    for one in found:
        one["name"] = own_name(one["name"], dialect.name)
    primary_key = tuple(own_name(column, dialect.name) for column in primary_key)
    uniques = [[own_name(one, dialect.name) for one in columns] for columns in (primary_key, *uniques)]
    arrays: dict[str, tuple[str, str]] = {}
    alike: set[str] = set()
    if dialect.name == "duckdb":
        arrays = {one["name"]: (f"{one['declared']}[]", "") for one in found}
    elif dialect.name == "postgresql":
        plain = {"name": quoted.replace("%%", "%")}  # the driver's own escape, which no parameter takes
        arrays, alike = _of_postgresql(connection, plain, found)
        uniques = list(connection.scalars(sa.text(_PG_KEYS), plain))
    if dialect.name != "postgresql":
        alike = _alike(connection, schema, table, found)
    keys = {name for columns in (primary_key, *uniques) for name in columns}
    if dialect.name != "mysql":  # whose writer looks itself
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
            )
            for one in found
        },
        primary_key,
        frozenset(frozenset(columns) for columns in uniques if columns),
        sorted(keys & alike),
    )


def _keys(inspector: sa.Inspector, schema: str | None, table: str) -> list[Any]:
    """The columns of each unique key but the primary one."""
    constraints = inspector.get_unique_constraints(table, schema=schema)
    indexes = inspector.get_indexes(table, schema=schema)
    return [one["column_names"] for one in constraints] + [
        one["column_names"] for one in indexes if one["unique"] and not _is_partial(dict(one))
    ]


def _is_partial(index: Mapping[str, Any]) -> bool:
    """Whether the index is of some rows, or of expressions, only: it is no key then."""
    options: Mapping[str, Any] = index.get("dialect_options", {})
    return None in index["column_names"] or any(
        key.endswith("_where") and options[key] is not None for key in options
    )


def _of_postgresql(
    connection: sa.Connection, name: Mapping[str, str], found: Sequence[Any]
) -> tuple[dict[str, tuple[str, str]], set[str]]:
    """Of each column the array that carries its values, and what becomes of its elements; and those columns
    whose `=` takes values for one. A domain in `found` becomes what it is a domain of."""
    types, alike = {}, set()
    columns = {one["name"]: one for one in found}
    for column, type_, is_array, of_domain, is_alike in connection.execute(sa.text(_PG_TYPES), name):
        # Arrays of arrays would be taken apart to their last elements.
        # And what PostgreSQL reads as money goes by the server's locale.
        is_money = type_ == "money"
        carried = "text[]" if is_array else "numeric[]" if is_money else f"{type_}[]"
        types[column] = carried, f"::{type_}" if is_array or is_money else ""
        columns[column]["type"] = within_domain(columns[column]["type"], of_domain)
        if is_alike:
            alike.add(column)
    return types, alike


def _alike(connection: sa.Connection, schema: str | None, table: str, found: Sequence[Any]) -> set[str]:
    """Columns whose `=` takes texts for one that differ; of SQLite and DuckDB all texts, if it may be one."""
    names, dialect = {"table": table, "schema": schema}, connection.dialect.name
    if dialect not in _COLLATES:
        return set(connection.scalars(_MY_ALIKE, names))
    if connection.execute(sa.text(_COLLATES[dialect]), names).first() is not None:
        return {one["name"] for one in found if _kind(one["type"]) is Kind.TEXT}
    return set(connection.scalars(_LITE_ALIKE, names)) if dialect == "sqlite" else set()


def _column(
    found: Any, dialect: sa.Dialect, primary_key: Sequence[str], array: tuple[str, str], *, is_alike: bool
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
        exactly=_EXACTLY[dialect.name] if is_alike else "",
        own=_own(type_, array[0], dialect.name),
        losses=losses_of(type_, dialect.name),
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
    # Of MySQL, BOOL is a number from -128 to 127.
    return Kind.INTEGER if isinstance(type_, mysql.TINYINT) else kind_of(type_)
