"""Write rows to PostgreSQL and DuckDB as one array per column. The database unnests them.

In PostgreSQL, this is nearly as fast as COPY into a staging table (benchmarks/sql.py) and adds no tables to
the catalog. The pieces of a batch are sent without waiting (the protocol's pipeline). The server processes
one piece while the next is written. In DuckDB, one statement per row would take some hundred times as long,
because it works on columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, ClassVar

import msgspec
import sqlalchemy as sa

from handlers.sql.target.known_tables import KnownColumn, KnownTable
from handlers.sql.types.values import Kind
from handlers.sql.writers.writer import Columns, Rows, Writer, insert_into, names, on_conflict

_PIECE = 500
"""Most rows in one statement."""

_NONES = frozenset((type(None),))
_NUMBERS = frozenset((int, float, Decimal)) | _NONES
# Types whose JSON needs no escapes and means the same to PostgreSQL.
_AS_JSON: Mapping[Kind, frozenset[type]] = {
    Kind.INTEGER: frozenset((int,)) | _NONES,
    Kind.DECIMAL: _NUMBERS,
    Kind.FLOAT: _NUMBERS,
    Kind.BOOLEAN: frozenset((bool,)) | _NONES,
    Kind.DATE: frozenset((date,)) | _NONES,
    Kind.DATETIME: frozenset((datetime, date)) | _NONES,
}
_json = msgspec.json.Encoder().encode

_NEXT, _NONE = "\0,", "\0N"


class DuckDBWriter(Writer):
    """Values except bytes are sent as text and cast to their column's type."""

    placeholder: ClassVar[str] = "?"

    def upsert(self, connection: sa.Connection, rows: Rows, key: Columns) -> None:
        sql = f"{_insert(rows.table, rows.columns)} {on_conflict(rows.columns + rows.untold, key)}"
        self._send(connection, sql, rows)

    def insert(self, connection: sa.Connection, rows: Rows) -> None:
        self._send(connection, _insert(rows.table, rows.columns), rows)

    def delete(self, connection: sa.Connection, keys: Rows) -> None:
        self._send(connection, _delete(keys.table, keys.columns), keys)

    def _send(self, connection: sa.Connection, sql: str, rows: Rows) -> None:
        lists = [list(values) for values in map(KnownColumn.encode, rows.columns, rows.values)]
        connection.exec_driver_sql(sql, tuple(lists))


class PostgreSQLWriter(DuckDBWriter):
    """Every value is sent as text. The server reads it by the column's type."""

    placeholder: ClassVar[str] = "%s"

    def upsert(self, connection: sa.Connection, rows: Rows, key: Columns) -> None:
        self._number(connection, rows, key)
        super().upsert(connection, rows, key)

    def merge(self, connection: sa.Connection, rows: Rows, key: Columns) -> None:
        self._number(connection, rows, key)
        super().merge(connection, rows, key)

    def move(self, connection: sa.Connection, old: Rows, new: Rows) -> None:
        if not any(column.is_numbered for column in new.columns):
            super().move(connection, old, new)
            return
        found = " AND ".join(column.same("%s", owner="target.") for column in old.columns)
        self._make_anew(connection, old, new, found)

    def update_one(self, connection: sa.Connection, old: Rows, new: Rows) -> bool:
        if not any(column.is_numbered for column in new.columns):
            return super().update_one(connection, old, new)
        found = self.one_sql(old.table, "", old.columns).removeprefix(" WHERE ")
        return self._make_anew(connection, old, new, found.replace("(tableoid, ctid)", _PLACE, 1))

    def _number(self, connection: sa.Connection, rows: Rows, key: Columns) -> None:
        """Replace existing rows whose identity numbers differ: no UPDATE may set those."""
        numbered = [one for one in rows.columns if one.is_numbered and one not in key]
        if numbered:
            found = " AND ".join(one.same(f"given.{one.quoted}", owner="target.") for one in key)
            other = " OR ".join(
                f"target.{one.quoted} IS DISTINCT FROM given.{one.quoted}" for one in numbered
            )
            sql = _anew(rows.table, rows.columns, f"{found} AND ({other})")
            self._send(connection, sql, rows)

    def _make_anew(self, connection: sa.Connection, old: Rows, new: Rows, found: str) -> bool:
        """Replace the row of `old` with the row of `new`. Columns that `new` does not set stay."""
        given = tuple(map(_array, new.columns, new.values)) + old.compared()[0]
        return connection.exec_driver_sql(_anew(new.table, new.columns, found), given).rowcount > 0

    def one_sql(self, table: KnownTable, verb: str, columns: Columns) -> str:
        # Without a key, ctid identifies a row. tableoid adds the partition of a partitioned table.
        place = f"SELECT tableoid, ctid FROM {table.quoted} WHERE {self.alike(columns)} LIMIT 1"
        return f"{verb} WHERE (tableoid, ctid) = ({place})"

    def alike(self, columns: Columns) -> str:
        return " AND ".join(map(_same, columns))

    def _send(self, connection: sa.Connection, sql: str, rows: Rows) -> None:
        driver: Any = connection.connection.driver_connection
        with driver.pipeline(), driver.cursor() as cursor:
            for start in range(0, rows.count, _PIECE):
                pieces = [values[start : start + _PIECE] for values in rows.values]
                cursor.execute(sql, list(map(_array, rows.columns, pieces)))


def _array(column: KnownColumn, values: Sequence[Any]) -> str:
    """Encode an array literal: https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO

    Raises UnfitColumn."""
    types = set(map(type, values))
    if types <= _AS_JSON.get(column.kind, frozenset()):
        # One call for all values is many times faster than one text for each.
        encoded = _json(values)
        if encoded.count(b"null") == (values.count(None) if types & _NONES else 0):  # NaN became null
            column.refuse_loss(values, types)
            return "{" + encoded[1:-1].decode() + "}"
    texts = column.encode(values, types)
    has_none = type(None) in types
    # No value contains NUL, so NUL marks our own separators.
    text = _NEXT.join([_NONE if one is None else one for one in texts] if has_none else texts)
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace(_NEXT, '","')
    if has_none:
        return ('{"' + text + '"}').replace(f'"{_NONE}"', "NULL")
    return '{"' + text + '"}'


def _same(column: KnownColumn) -> str:
    """json, xml and point have no equality, so compare their normalized texts."""
    item, operator = getattr(column.sql_type, "item_type", column.sql_type), "IS NOT DISTINCT FROM"
    given = f"%s{_escaped(column.cast or '::' + column.array_type.removesuffix('[]'))}"
    if isinstance(item, sa.JSON | sa.types.NullType):
        return f"{column.quoted}::text {operator} ({given})::text"
    return column.same(given if column.exactly else column.given("%s"), operator)


_PLACE = "(target.tableoid, target.ctid)"


def _anew(table: KnownTable, columns: Columns, found: str) -> str:
    """DELETE and INSERT the rows that `found` (over target and given) selects. Other columns stay."""
    given = [f"{_unnest(one)} AS {one.quoted}" for one in columns]
    written = tuple(one for one in table.columns.values() if not one.is_generated)
    kept = [f"{'given' if one in columns else 'target'}.{one.quoted}" for one in written]
    return (
        f"WITH given AS (SELECT {', '.join(given)}), old AS (DELETE FROM {table.quoted} AS target "
        f"USING given WHERE {found} RETURNING {', '.join(kept)}) "
        f"{insert_into(table, written)} SELECT * FROM old"
    )


def _escaped(type_name: str) -> str:
    return type_name.replace("%", "%%")


@lru_cache(maxsize=1000)
def _insert(table: KnownTable, columns: Columns) -> str:
    # In SELECT they are unnested row by row. In FROM each would be materialized first.
    return f"{insert_into(table, columns)} SELECT {', '.join(map(_unnest, columns))}"


def _unnest(column: KnownColumn) -> str:
    if column.dialect == "duckdb":
        return f"unnest(CAST(? AS {column.array_type}))"
    return f"unnest(%s::{_escaped(column.array_type)}){_escaped(column.cast)}"


@lru_cache(maxsize=1000)
def _delete(table: KnownTable, key: Columns) -> str:
    if key[0].dialect == "duckdb":
        given = ", ".join(f"{_unnest(column)} AS {column.quoted}" for column in key)
        using = f"(SELECT {given}) AS given"
    else:
        arrays = ", ".join(f"%s::{_escaped(column.array_type)}" for column in key)
        using = f"unnest({arrays}) AS given({names(key)})"
    equal = " AND ".join(column.same(f"given.{column.quoted}", owner="target.") for column in key)
    return f"DELETE FROM {table.quoted} AS target USING {using} WHERE {equal}"
