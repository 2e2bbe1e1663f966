"""Facts from the databases' catalogs that SQLAlchemy does not read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa

from handlers.sql.types.postgresql_types import innermost_type
from handlers.sql.types.values import Kind, kind_of


class Unsafe(NamedTuple):
    """The reason why rows of a table are not safe; empty if they are."""

    because: str = ""
    waits: Literal["none", "keyless", "all"] = "none"
    """Which tables wait until the cause is fixed: none, tables without a key, or all."""


# Per column: its type for a cast, whether it is an array, and the innermost type of its domains and arrays,
# with sizes. The type for a cast has no length, also for an array's element: -1 gives bpchar, not char(1).
_PG_TYPES = """
    WITH RECURSIVE within AS (
        SELECT a.attname, a.attcollation, format_type(a.atttypid, -1) AS own, false AS is_array,
            a.atttypid AS id, a.atttypmod AS sizes
        FROM pg_attribute a
        WHERE a.attrelid = CAST(:name AS regclass) AND a.attnum > 0 AND NOT a.attisdropped
      UNION ALL
        SELECT attname, attcollation, own, is_array OR typcategory = 'A',
            CASE typtype WHEN 'd' THEN typbasetype ELSE typelem END,
            CASE typtype WHEN 'd' THEN typtypmod ELSE sizes END
        FROM within JOIN pg_type t ON t.oid = id WHERE typtype = 'd' OR typcategory = 'A'
    )
    SELECT attname, own, is_array, format_type(id, sizes),
        t.typname = 'citext' OR coalesce(to_jsonb(c) ->> 'collisdeterministic', '') = 'false'
    FROM within JOIN pg_type t ON t.oid = id LEFT JOIN pg_collation c ON c.oid = attcollation
    WHERE t.typtype <> 'd' AND t.typcategory <> 'A'
"""
# Unique keys that ON CONFLICT accepts and that compare values exactly.
_PG_KEYS = """
    SELECT array_agg(a.attname::text) FROM pg_index i
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
    WHERE i.indrelid = CAST(:name AS regclass) AND i.indisunique AND i.indisvalid AND i.indimmediate
        AND i.indpred IS NULL AND i.indexprs IS NULL AND NOT EXISTS (
            SELECT FROM pg_collation c
            WHERE c.oid = ANY (i.indcollation) AND to_jsonb(c) ->> 'collisdeterministic' = 'false')
    GROUP BY i.indexrelid
"""
_MY_NEXT_NUMBER = re.compile(r" AUTO_INCREMENT=\d+")
_MY_COLUMNS = (
    "SELECT column_name FROM information_schema.columns "
    "WHERE table_name = :table AND table_schema = coalesce(:schema, database()) AND "
)
_MY_ALIKE = sa.text(
    f"{_MY_COLUMNS} collation_name NOT LIKE '%nopad_bin' AND collation_name <> 'utf8mb4_0900_bin'"
)
_MY_RENEWED = sa.text(_MY_COLUMNS + "extra LIKE '%on update%'")
_MY_ENGINE = sa.text(
    "SELECT engine FROM information_schema.tables JOIN information_schema.engines USING (engine) "
    "WHERE table_name = :table AND table_schema = coalesce(:schema, database()) AND transactions <> 'YES'"
)
_MY_TRIGGER = sa.text(
    "SELECT trigger_name FROM information_schema.triggers WHERE event_object_table = :table "
    "AND event_object_schema = coalesce(:schema, database()) LIMIT 1"
)
_FIRES = Unsafe("it has triggers, which fire for replicated rows: drop those that the source also has")
_PG_REASONS = (
    Unsafe("a policy of row-level security may hide rows: give the account BYPASSRLS", "all"),
    Unsafe("it is UNLOGGED: a crash of the server empties it"),
    Unsafe("tables inherit from it, and a change of its row also changes theirs with the same key"),
    _FIRES,
)
# The versions of the table's columns and keys, and which of `_PG_REASONS` hold. SELECT, UPDATE and DELETE
# find rows. They find all rows if each has a permissive policy that is true for all, and no restrictive
# policy limits them.
_PG_STATE = sa.text("""
    WITH ours AS (
        SELECT polcmd::text AS cmd, polpermissive AS permits,
            pg_get_expr(polqual, polrelid) = 'true' AS is_all
        FROM pg_policy WHERE polrelid = CAST(:name AS regclass) AND polcmd <> 'a' AND EXISTS (
            SELECT FROM unnest(polroles) role WHERE role = 0 OR pg_has_role(role, 'USAGE'))
    )
    SELECT (
            SELECT string_agg(concat(part, ' ', xmin), ', ' ORDER BY part, attnum) FROM (
                SELECT attrelid AS part, attnum, xmin FROM pg_attribute WHERE attrelid = c.oid
                UNION ALL SELECT indexrelid, 0, xmin FROM pg_index WHERE indrelid = c.oid) AS found),
        row_security_active(oid) AND (
            EXISTS (SELECT FROM ours WHERE NOT permits AND NOT is_all)
            OR EXISTS (SELECT FROM unnest(ARRAY['r', 'w', 'd']) used WHERE NOT EXISTS (
                SELECT FROM ours WHERE permits AND is_all AND cmd IN (used, '*')))),
        relpersistence = 'u', relkind = 'r' AND EXISTS (
            SELECT FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid
            WHERE inhparent = c.oid AND child.relnamespace::regnamespace::text !~ '^_timescaledb'), EXISTS (
            SELECT FROM pg_trigger WHERE tgrelid = c.oid AND NOT tgisinternal AND tgenabled IN ('O', 'A'))
    FROM pg_class c WHERE oid = CAST(:name AS regclass)
""")
_LITE_ALIKE = sa.text(
    "SELECT x.name FROM pragma_index_list(:table) l, pragma_index_xinfo(l.name) x "
    "WHERE l.\"unique\" AND x.key AND x.coll <> 'BINARY' AND x.name IS NOT NULL"
)
_LITE_SQL = sa.text("SELECT sql FROM sqlite_master WHERE name = :table")
_LITE_TYPES = sa.text("SELECT name, type FROM pragma_table_xinfo(:table)")
_STRICT = re.compile(r"\)[^)]*\bSTRICT\b[^)]*$", re.IGNORECASE)
_COLLATES = {
    "sqlite": "SELECT 1 FROM sqlite_master WHERE name = :table AND upper(sql) LIKE '%COLLATE%'",
    "duckdb": "SELECT 1 FROM duckdb_tables() WHERE schema_name = :schema AND upper(sql) LIKE '%COLLATE%' "
    "AND lower(table_name) = lower(:table)",
}


def unique_keys(inspector: sa.Inspector, schema: str | None, table: str) -> list[Any]:
    """Return the columns of each unique key except the primary key."""
    constraints = inspector.get_unique_constraints(table, schema=schema)
    indexes = inspector.get_indexes(table, schema=schema)
    # An index of expressions or of some rows only is not a key.
    return [one["column_names"] for one in constraints] + [
        one["column_names"]
        for one in indexes
        if one["unique"] and None not in one["column_names"]
        if not any(
            name.endswith("_where") for name, to in one.get("dialect_options", {}).items() if to is not None
        )
    ]


def of_postgresql(
    connection: sa.Connection, name: Mapping[str, str], found: Sequence[Any]
) -> tuple[dict[str, tuple[str, str]], set[str], list[list[str]]]:
    """Return three facts. For each column: the array type that carries its values, and its elements' cast.
    The columns whose `=` treats different values as equal. The columns of each unique key. Replaces each
    domain in `found` by its base type."""
    types, alike = {}, set()
    columns = {one["name"]: one for one in found}
    for column, type_, is_array, innermost, is_alike in connection.execute(sa.text(_PG_TYPES), name):
        if column not in columns:
            continue  # another session has just added it, and `definition` differs
        # unnest would split arrays of arrays into their innermost elements, so arrays travel as text.
        # PostgreSQL reads money from text by the server's locale, so money travels as numeric.
        is_money = innermost == "money"
        carried = "text[]" if is_array else "numeric[]" if is_money else f"{type_}[]"
        cast = f"::{type_}" if is_array or is_money else ""
        types[column] = carried, f"::numeric[]{cast}" if is_array and is_money else cast
        columns[column]["type"] = innermost_type(columns[column]["type"], innermost, is_array=is_array)
        if is_alike:
            alike.add(column)
    return types, alike, list(connection.scalars(sa.text(_PG_KEYS), name))


def declared_types(connection: sa.Connection, table: str) -> dict[str, str]:
    """Return column -> declared type of a SQLite table. ANY in a STRICT table becomes an empty text, as for a
    column without a type elsewhere."""
    is_strict = _STRICT.search(connection.scalar(_LITE_SQL, {"table": table}) or "") is not None
    found = connection.execute(_LITE_TYPES, {"table": table})
    return {name: "" if is_strict and type_.upper() == "ANY" else type_ for name, type_ in found}


def alike_columns(
    connection: sa.Connection, schema: str | None, table: str, found: Sequence[Any]
) -> set[str]:
    """Return columns whose `=` may treat different texts as equal: all of SQLite or DuckDB with COLLATE."""
    names, dialect = {"table": table, "schema": schema}, connection.dialect.name
    if dialect not in _COLLATES:
        return set(connection.scalars(_MY_ALIKE, names))
    if connection.execute(sa.text(_COLLATES[dialect]), names).first() is not None:
        return {one["name"] for one in found if kind_of(one["type"]) is Kind.TEXT}
    return set(connection.scalars(_LITE_ALIKE, names)) if dialect == "sqlite" else set()


def unsafe(connection: sa.Connection, schema: str | None, table: str, quoted: str) -> Unsafe:
    """Return why rows of the table may be lost, hidden or written twice although their marks are kept."""
    if connection.dialect.name == "postgresql":
        found = zip(_pg_state(connection, quoted)[1:], _PG_REASONS, strict=True)
        return next((reason for is_so, reason in found if is_so), Unsafe())
    if connection.dialect.name not in ("mysql", "mariadb"):
        return Unsafe()
    of = {"table": table, "schema": schema}
    engine = connection.scalar(_MY_ENGINE, of)
    if engine is not None:
        return Unsafe(f"its engine {engine} has no transactions: use ENGINE=InnoDB", "keyless")
    return _FIRES if connection.scalar(_MY_TRIGGER, of) else Unsafe()


def renewed_columns(connection: sa.Connection, schema: str | None, table: str) -> set[str]:
    """Return columns of MySQL and MariaDB that an UPDATE sets to the current time unless it sets them."""
    if connection.dialect.name not in ("mysql", "mariadb"):
        return set()
    return set(connection.scalars(_MY_RENEWED, {"table": table, "schema": schema}))


def definition(connection: sa.Connection, quoted: str) -> str:
    """Return a text that differs after each change of the table's columns or keys (PostgreSQL: also of
    `unsafe`). Empty for SQLite, which gets values as they are, and for DuckDB, whose file has one process."""
    match connection.dialect.name:
        case "postgresql":
            return ", ".join(map(str, _pg_state(connection, quoted)))
        case "mysql" | "mariadb":
            return _MY_NEXT_NUMBER.sub("", connection.exec_driver_sql(f"SHOW CREATE TABLE {quoted}").one()[1])
    return ""


def _pg_state(connection: sa.Connection, quoted: str) -> Sequence[Any]:
    # `%%` is the driver's escape, which must not be in a parameter.
    return connection.execute(_PG_STATE, {"name": quoted.replace("%%", "%")}).one()
