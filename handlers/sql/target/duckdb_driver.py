"""DuckDB's driver as SQLAlchemy wants one (PEP 249).

A cursor of DuckDB's is a connection of its own, with a transaction of its own. Ours are all of one
connection, and take the rows of each statement at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import duckdb

__all__ = ["Connection", "Cursor", "DatabaseError", "Error", "connect", "paramstyle"]

paramstyle = "qmark"
Error = duckdb.Error
DatabaseError = duckdb.DatabaseError

_QUERY = re.compile(r"\s*(SELECT|WITH|FROM|VALUES|PRAGMA|SHOW|DESCRIBE)\b", re.IGNORECASE)


class Cursor:
    """The rows of one statement."""

    arraysize = 1

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._rows: list[tuple[Any, ...]] = []
        self._next = 0
        self.description: Sequence[Any] | None = None
        self.rowcount = -1

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Cursor:
        self._take(self._connection.execute(sql, list(parameters)), sql)
        return self

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> Cursor:
        self._take(self._connection.executemany(sql, [list(row) for row in rows]), sql)
        return self

    def _take(self, result: duckdb.DuckDBPyConnection, sql: str) -> None:
        found = result.fetchall() if result.description else []
        self._next = 0
        if _QUERY.match(sql):
            self._rows, self.description, self.rowcount = found, result.description, -1
        else:
            # What is no query answers how many rows it has changed.
            self._rows, self.description = [], None
            self.rowcount = found[0][0] if found and isinstance(found[0][0], int) else -1

    def fetchone(self) -> tuple[Any, ...] | None:
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        first, self._next = self._next, self._next + (size or self.arraysize)
        return self._rows[first : self._next]

    def fetchall(self) -> list[tuple[Any, ...]]:
        first, self._next = self._next, len(self._rows)
        return self._rows[first:]

    def close(self) -> None:
        self._rows = []


class Connection:
    """One connection; used by one thread at a time."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def cursor(self) -> Cursor:
        return Cursor(self._connection)

    def commit(self) -> None:
        self._end(self._connection.commit)

    def rollback(self) -> None:
        self._end(self._connection.rollback)

    @staticmethod
    def _end(end: Callable[[], object]) -> None:
        """Nothing where no transaction is under way."""
        try:
            end()
        except duckdb.TransactionException as error:
            if "no transaction is active" not in str(error):
                raise

    def close(self) -> None:
        self._connection.close()


def connect(file: str) -> Connection:
    """Raises duckdb.Error."""
    return Connection(duckdb.connect(file))
