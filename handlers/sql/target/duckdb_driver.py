"""Adapter that makes DuckDB's driver follow PEP 249, as SQLAlchemy needs it.

DuckDB's own cursors are connections, each with its own transaction. These cursors share one connection and
read all rows of a statement at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import duckdb

paramstyle = "qmark"
Error = duckdb.Error
DatabaseError = duckdb.DatabaseError

_QUERY = re.compile(r"\s*(SELECT|WITH|FROM|VALUES|PRAGMA|SHOW|DESCRIBE)\b", re.IGNORECASE)


class Cursor:
    """The rows of one statement."""

    arraysize = 1

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._rows: Iterator[tuple[Any, ...]] = iter(())
        self.description: Sequence[Any] | None = None
        self.rowcount = -1

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        self._take(self._connection.execute(sql, list(parameters)), sql)

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        self._take(self._connection.executemany(sql, [list(row) for row in rows]), sql)

    def _take(self, result: duckdb.DuckDBPyConnection, sql: str) -> None:
        found = result.fetchall() if result.description else []
        is_query = _QUERY.match(sql) is not None
        self._rows = iter(found if is_query else ())
        self.description = result.description if is_query else None
        # Other statements return the number of changed rows.
        is_counted = not is_query and found and isinstance(found[0][0], int)
        self.rowcount = found[0][0] if is_counted else -1

    def fetchone(self) -> tuple[Any, ...] | None:
        return next(self._rows, None)

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        return list(islice(self._rows, size or self.arraysize))

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self._rows)

    def close(self) -> None:
        self._rows = iter(())


class Connection:
    """A connection for one thread at a time."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self.commit = connection.commit
        self.close = connection.close

    def cursor(self) -> Cursor:
        return Cursor(self._connection)

    def rollback(self) -> None:
        with suppress(duckdb.TransactionException):  # no transaction is open
            self._connection.rollback()


def connect(file: str) -> Connection:
    """Open the file. Raises duckdb.Error."""
    return Connection(duckdb.connect(file))
