"""Change a column's type: convert its values as MySQL would, and keep its default."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from handlers.logs import get_logger
from handlers.sql.ddl.target import Target, TargetTable
from handlers.sql.types.column_types import Unsigned64

log = get_logger("handlers.sql")

Type = sa.types.TypeEngine[Any]
_BY_KIND = {
    ("labels", "text"): "array_to_string({}, ',')",
    ("moment", "datetime"): "{} AT TIME ZONE 'UTC'",
    ("datetime", "moment"): "{} AT TIME ZONE 'UTC'",
}

# https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html
_NO_SUCH_DEFAULT = (1067, 1101, 1294)
"""Invalid default; texts and blobs allow no default; invalid ON UPDATE."""


def _kind(type_: Type) -> str:  # noqa: PLR0911 - one return for each kind
    if isinstance(type_, sa.Boolean):
        return "boolean"
    if isinstance(type_, sa.Integer | sa.Numeric | sa.Float | Unsigned64):
        return "number"
    if isinstance(type_, sa.LargeBinary | postgresql.BYTEA):
        return "bytes"
    if isinstance(type_, sa.ARRAY) and isinstance(type_.item_type, sa.String):
        return "labels"
    if isinstance(type_, sa.DateTime):
        return "moment" if type_.timezone else "datetime"
    if isinstance(type_, sa.String):
        return "text"
    return type_.__class__.__name__.lower()


def in_postgresql(column: str, old: Type, new: Type, new_sql: str) -> str:
    """Return an expression over the quoted column with the new type (`new_sql` in PostgreSQL's syntax).

    A too long text and a number out of range are errors, as in MySQL."""
    from_, to = _kind(old), _kind(new)
    if from_ == to:
        if isinstance(old, sa.Float) and not isinstance(new, sa.Integer | sa.Float):
            return f"{column}::double precision::text::numeric"  # its own cast keeps 6 or 15 digits
        return column  # PostgreSQL's own assignment rounds, and refuses values that do not fit
    by_kind = {
        **_BY_KIND,
        ("text", "labels"): "string_to_array({}, ',')",
        ("bytes", "text"): "convert_from({}, 'UTF8')",
        ("text", "bytes"): "convert_to({}, 'UTF8')",
        ("number", "boolean"): "{} <> 0",
        ("boolean", "number"): "{}::integer",
        # Not casts to the type itself: they would cut texts and refuse fractions for whole numbers.
        ("text", "number"): "{}::numeric",
    }
    other = "{}::text" if to == "text" else f"{{}}::text::{new_sql}"
    return by_kind.get((from_, to), other).format(column)


def in_duckdb(column: str, old: Type, new: Type, new_sql: str) -> str:
    """Return an expression over the quoted column with the new type (`new_sql` in DuckDB's syntax). A number
    out of range is an error, as in MySQL. Texts have no length."""
    by_kind = {
        **_BY_KIND,
        ("text", "labels"): "CASE WHEN {0} = '' THEN [] ELSE string_split({0}, ',') END",
        ("bytes", "text"): "decode({})",
        ("text", "bytes"): "encode({})",
    }
    return by_kind.get((_kind(old), _kind(new)), f"CAST({{}} AS {new_sql})").format(column)


def in_sqlite(column: str, new: Type) -> str:
    """Return an expression over the quoted column whose value fits the new type.

    SQLite stores exact numbers as their digits, other numbers as numbers, and other values as text."""
    if isinstance(new, sa.Integer):
        # Keep whole numbers: beyond 2^53 a float would lose digits.
        whole = f"CAST({column} AS INTEGER)"
        is_whole = f"CAST({whole} AS TEXT) = CAST({column} AS TEXT)"
        return f"CASE WHEN {is_whole} THEN {whole} ELSE CAST(ROUND({column}) AS INTEGER) END"
    for kind, name in ((sa.Float, "REAL"), (sa.LargeBinary, "BLOB"), (sa.String, "TEXT")):
        if isinstance(new, kind):
            return f"CAST({column} AS {name})"
    return column


def modify_in_mysql(target: Target, table: TargetTable, column: str, definition: str) -> None:
    """Change the column's definition. Keep its default if the new type accepts it."""
    modify = f"MODIFY {target.quote(column)} {definition}"
    default = _default_in_mysql(target, table, column)
    if default:
        try:
            target.alter(table, f"{modify} DEFAULT {default}")
        except sa.exc.DBAPIError as error:
            if getattr(error.orig, "args", (None,))[0] not in _NO_SUCH_DEFAULT:
                raise
            target.done.pop()
            log.warning("ddl_default_not_kept", table=table.name, column=column, default=default)
        else:
            return
    target.alter(table, modify)


def _default_in_mysql(target: Target, table: TargetTable, column: str) -> str:
    """Return the default in SQL syntax; empty if the column has no default."""
    found = target.connection.execute(
        sa.text(
            "SELECT column_default, extra FROM information_schema.columns WHERE table_name = :name "
            "AND table_schema = coalesce(:schema, database()) AND column_name = :column"
        ),
        {"name": table.name, "schema": table.schema, "column": column},
    ).first()
    if found is None or found[0] is None:
        return ""
    default, extra = str(found[0]), str(found[1])
    if getattr(target.connection.dialect, "is_mariadb", False):
        return "" if default == "NULL" else default  # in SQL syntax already
    if "DEFAULT_GENERATED" in extra:
        return default if default.startswith("CURRENT_TIMESTAMP") else f"({default})"
    return default if default.startswith("b'") else target.literal(default, sa.String())


_DEFAULT = sa.text(
    "SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d "
    "JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum "
    "WHERE d.adrelid = CAST(:table AS regclass) AND a.attname = :column AND a.attgenerated = ''"
)


def retype_in_postgresql(target: Target, table: TargetTable, column: str, clause: str, type_: str) -> None:
    """Change the type with `clause` (after ALTER COLUMN) and keep the default if it can be cast to `type_`.
    PostgreSQL itself keeps defaults only if an implicit or assignment cast exists."""
    own = f"ALTER COLUMN {target.quote(column)}"
    found = {"table": target.ref(table), "column": column}
    default = target.connection.scalar(_DEFAULT, found)
    if default is None:
        target.alter(table, f"{own} {clause}")
        return
    target.alter(table, f"{own} DROP DEFAULT", f"{own} {clause}")
    try:
        with target.connection.begin_nested():
            # Cast it once now. Otherwise it would fail only at each insert.
            target.run(f"SELECT CAST(({default}) AS {type_})", is_change=False)
            target.alter(table, f"{own} SET DEFAULT CAST(({default}) AS {type_})")
    except sa.exc.DBAPIError:
        log.warning("ddl_default_not_kept", table=table.name, column=column, default=default)
