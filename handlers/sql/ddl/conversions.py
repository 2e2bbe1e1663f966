"""Convert existing values as MySQL would if a column's type changes."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from handlers.sql.types.column_types import Unsigned64

Type = sa.types.TypeEngine[Any]
_BY_KIND = {
    ("labels", "text"): "array_to_string({}, ',')",
    ("moment", "datetime"): "{} AT TIME ZONE 'UTC'",
    ("datetime", "moment"): "{} AT TIME ZONE 'UTC'",
}


def _kind(type_: Type) -> str:  # noqa: PLR0911 - one return for each kind
    if isinstance(type_, sa.Boolean):
        return "boolean"
    if isinstance(type_, sa.Integer | sa.Numeric | Unsigned64):
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
    if isinstance(new, sa.Float | sa.REAL):
        return f"CAST({column} AS REAL)"
    if isinstance(new, sa.LargeBinary):
        return f"CAST({column} AS BLOB)"
    if isinstance(new, sa.String):
        return f"CAST({column} AS TEXT)"
    return column
