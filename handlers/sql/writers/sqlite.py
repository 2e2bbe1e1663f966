"""Rows into SQLite: a statement a row, which costs nothing without a network."""

from __future__ import annotations

from typing import ClassVar

from handlers.sql.target.known_tables import KnownTable
from handlers.sql.writers.writer import Columns, Writer

__all__ = ["SQLiteWriter"]


class SQLiteWriter(Writer):
    placeholder: ClassVar[str] = "?"

    def one_sql(self, table: KnownTable, verb: str, columns: Columns) -> str:
        same = " AND ".join(column.same("?", "IS") for column in columns)
        return f"{verb} WHERE rowid = (SELECT rowid FROM {table.quoted} WHERE {same} LIMIT 1)"
