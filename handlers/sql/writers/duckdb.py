"""Write rows to DuckDB as one list per column. The database unnests them.

One statement per row would take some hundred times as long, because DuckDB works on columns."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

import sqlalchemy as sa

from handlers.sql.target.known_tables import KnownColumn, KnownTable
from handlers.sql.writers.writer import Columns, Rows, Writer, insert_into, on_conflict


class DuckDBWriter(Writer):
    """Values except bytes are sent as text and cast to their column's type."""

    placeholder: ClassVar[str] = "?"

    def upsert(self, connection: sa.Connection, rows: Rows, key: Columns) -> None:
        sql = f"{_insert(rows.table, rows.columns)} {on_conflict(rows.columns + rows.untold, key)}"
        self._as_lists(connection, sql, rows)

    def insert(self, connection: sa.Connection, rows: Rows) -> None:
        self._as_lists(connection, _insert(rows.table, rows.columns), rows)

    def delete(self, connection: sa.Connection, keys: Rows) -> None:
        self._as_lists(connection, _delete(keys.table, keys.columns), keys)

    def _as_lists(self, connection: sa.Connection, sql: str, rows: Rows) -> None:
        lists = [list(values) for values in map(KnownColumn.encode, rows.columns, rows.values)]
        connection.exec_driver_sql(sql, tuple(lists))


@lru_cache(maxsize=1000)
def _insert(table: KnownTable, columns: Columns) -> str:
    lists = ", ".join(f"unnest(CAST(? AS {one.array_type}))" for one in columns)
    return f"{insert_into(table, columns)} SELECT {lists}"


@lru_cache(maxsize=1000)
def _delete(table: KnownTable, key: Columns) -> str:
    lists = ", ".join(f"unnest(CAST(? AS {one.array_type})) AS {one.quoted}" for one in key)
    equal = " AND ".join(one.same(f"given.{one.quoted}", owner="target.") for one in key)
    return f"DELETE FROM {table.quoted} AS target USING (SELECT {lists}) AS given WHERE {equal}"
