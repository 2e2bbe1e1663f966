"""Drivers that send no statement for which the server would cut the connection, as if it were down."""

from __future__ import annotations

from collections.abc import Sequence
from socket import socket
from typing import Any

import psycopg
import pymysql

_POSTGRESQL_BYTES = (1 << 30) - 100_000
"""The parameters of one statement; a message ends below 1 GiB."""
_MYSQL_TOO_LARGE = 1153
"""The code with which a server refuses a packet, if the client comes to read the answer."""


class PostgreSQLCursor(psycopg.Cursor[Any]):
    def execute(self, query: Any, params: Any = None, **options: Any) -> PostgreSQLCursor:
        """Raises psycopg's errors."""
        texts = [one for one in params if isinstance(one, str)] if isinstance(params, Sequence) else ()
        if sum(map(len, texts)) >= _POSTGRESQL_BYTES // 4:  # characters, of at most four bytes
            size = sum(len(one.encode()) for one in texts)
            if size >= _POSTGRESQL_BYTES:
                raise psycopg.DataError(f"its values take {size} bytes, and PostgreSQL takes less than 1 GiB")
        return super().execute(query, params, **options)


class MySQLConnection(pymysql.Connection):
    _limit = 1 << 30
    is_outgrown = False
    """It has met a statement that is too large. A session keeps its limit when the server's is raised."""

    def connect(self, sock: socket | None = None) -> None:
        super().connect(sock)
        with self.cursor() as cursor:
            cursor.execute("SELECT @@max_allowed_packet")
            [self._limit] = cursor.fetchone() or [self._limit]

    def query(self, sql: str | bytes, unbuffered: bool = False) -> int:
        """Raises pymysql's errors."""
        encoded = sql.encode(self.encoding) if isinstance(sql, str) else sql
        size = len(encoded) + 1  # the command's own byte
        if size >= self._limit:
            self.is_outgrown = True
            raise pymysql.err.DataError(
                _MYSQL_TOO_LARGE,
                f"its statement takes {size} bytes, and the server takes less than {self._limit}: raise "
                "max_allowed_packet in its configuration, or with SET GLOBAL",
            )
        return super().query(encoded, unbuffered)
