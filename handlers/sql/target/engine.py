"""Connections to the target, with sessions that keep values as they are: UTC, strict, Unicode."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from socket import socket
from typing import Any

import psycopg
import pymysql
import sqlalchemy as sa
from sqlalchemy.dialects import registry
from sqlalchemy.engine import make_url

registry.register("duckdb.binlane", "handlers.sql.target.duckdb_dialect", "DuckDBDialect")

_DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
    "sqlite": "sqlite+pysqlite",
    "duckdb": "duckdb+binlane",
}
_ALLOWED = "postgresql://, mysql://, mariadb://, sqlite:// or duckdb://"
_FILES = {"sqlite": "SQLite", "duckdb": "DuckDB"}
"""Databases that are a file."""
_CONNECT_SECONDS = 10
_LOCK_SHARE = 0.9
"""Of a statement's time it may wait for a lock so long."""
_LONGEST_IDLE_SECONDS = 1800
"""Servers and firewalls cut connections that idle; MySQL after 8 hours, most firewalls after one."""

_POSTGRESQL_BYTES = (1 << 30) - 100_000
"""The parameters of one statement; a message ends below 1 GiB."""
_MYSQL_TOO_LARGE = 1153
"""The code with which a server refuses a packet, if the client comes to read the answer."""


class PostgreSQLCursor(psycopg.Cursor[Any]):
    """Sends no statement for which the server would cut the connection, as if it were down."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> PostgreSQLCursor:
        """Raises psycopg's errors."""
        texts = [one for one in params if isinstance(one, str)] if isinstance(params, Sequence) else ()
        if sum(map(len, texts)) >= _POSTGRESQL_BYTES // 4:  # characters, of at most four bytes
            size = sum(len(one.encode()) for one in texts)
            if size >= _POSTGRESQL_BYTES:
                raise psycopg.DataError(f"its values take {size} bytes, and PostgreSQL takes less than 1 GiB")
        return super().execute(query, params, **options)


class MySQLConnection(pymysql.Connection):
    """As PostgreSQLCursor."""

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


def check_url(text: str) -> sa.URL:
    """The URL with binlane's driver for its database.

    Raises ValueError, whose text holds nothing of the URL: it may hold a password."""
    try:
        url = make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        raise ValueError(f"it is no URL of a database; allowed: {_ALLOWED}") from None
    backend, _, driver = url.drivername.partition("+")
    chosen = _DRIVERS.get(backend)
    if chosen is None or driver not in ("", chosen.partition("+")[2]):
        raise ValueError(f"there is no driver for such a database; allowed: {_ALLOWED}")
    if backend in _FILES and (
        url.database in (None, "", ":memory:") or "mode" in url.query or url.host is not None
    ):
        raise ValueError(f"{_FILES[backend]} needs a file, as in {backend}:///replica.db")
    if backend == "duckdb" and url.query:
        raise ValueError("a DuckDB URL takes no settings, only the file's name")
    if backend == "duckdb" and importlib.util.find_spec("duckdb") is None:
        raise ValueError("DuckDB needs the package duckdb: pip install '.[duckdb]' in binlane's folder")
    if backend not in _FILES and not url.database and backend not in ("mysql", "mariadb"):
        raise ValueError("the URL names no database")
    return url.set(drivername=chosen)


def make_engine(url: sa.URL, *, folder: Path, pool_size: int, timeout: float) -> sa.Engine:
    """An engine that has not connected yet.

    `folder`: where a relative SQLite file starts. `timeout`: seconds that one statement may take."""
    dialect = url.get_backend_name()
    options: dict[str, Any] = {"pool_size": pool_size, "pool_timeout": timeout}
    if dialect == "sqlite":
        url = url.set(database=str(folder / str(url.database)))
        # SQLite has one writer at a time; threads wait for the connection in their turn.
        options.update(pool_size=1, connect_args={"timeout": 30.0})
    elif dialect == "duckdb":
        url = url.set(database=str(folder / str(url.database)))
        # Batches go one by one: so none sees half of another, and none meets one that changes the same row.
        options.update(pool_size=1)
    elif dialect == "postgresql":
        options["connect_args"] = {
            "connect_timeout": _CONNECT_SECONDS,
            "client_encoding": "utf8",
            "cursor_factory": PostgreSQLCursor,
            "application_name": "binlane",
            "keepalives_idle": 30,
            "tcp_user_timeout": 60_000,
        }
    else:
        options["connect_args"] = {
            "charset": "utf8mb4",
            "connect_timeout": _CONNECT_SECONDS,
            "read_timeout": int(timeout) or 1,
            "write_timeout": int(timeout) or 1,
        }
    if dialect not in _FILES:
        # What is read after a lock has to be what was committed while it was waited for, whatever the server
        # has for a default. The gap locks of MySQL's own would make tables' batches wait for each other, too.
        options["isolation_level"] = "READ COMMITTED"
    # hide_parameters: rows stay out of errors and logs.
    engine = sa.create_engine(
        url, max_overflow=0, pool_recycle=_LONGEST_IDLE_SECONDS, hide_parameters=True, **options
    )
    _set_sessions_up(engine, timeout)
    if dialect == "mysql":
        _heed_packets(engine)
    return engine


# Their drivers begin none. IMMEDIATE: what is read after it stays true until the commit.
_BEGINNINGS = {"sqlite": "BEGIN IMMEDIATE", "duckdb": "BEGIN TRANSACTION"}


def _set_sessions_up(engine: sa.Engine, timeout: float) -> None:
    dialect = engine.dialect.name

    # First: SQLAlchemy asks the first session once how names and texts are to be spelled in all of them.
    @sa.event.listens_for(engine, "connect", insert=True)
    def _connected(connection: Any, _: Any) -> None:
        if dialect == "sqlite":
            # The driver's own transactions begin too late and leave DDL out.
            connection.isolation_level = None
        cursor = connection.cursor()
        for statement in _session_statements(dialect, timeout):
            cursor.execute(statement)
        cursor.close()
        if dialect not in _BEGINNINGS:
            connection.commit()

    if dialect in _BEGINNINGS:

        @sa.event.listens_for(engine, "begin")
        def _begin(connection: sa.Connection) -> None:
            connection.exec_driver_sql(_BEGINNINGS[dialect])


def _heed_packets(engine: sa.Engine) -> None:
    @sa.event.listens_for(engine, "do_connect")
    def _connect(_: Any, __: Any, arguments: Any, parameters: Any) -> MySQLConnection:
        return MySQLConnection(*arguments, **parameters)

    @sa.event.listens_for(engine, "checkin")
    def _returned(connection: MySQLConnection | None, record: Any) -> None:
        if connection is not None and connection.is_outgrown:
            record.invalidate()


def _session_statements(dialect: str, timeout: float) -> list[str]:
    if dialect == "sqlite":
        return ["PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL"]
    if dialect == "duckdb":
        return ["SET TimeZone = 'UTC'"]
    if dialect == "postgresql":
        return [
            "SET timezone = 'UTC'",
            "SET datestyle = 'ISO'",
            # How values are read, and written where one becomes a text; what the server, the database or the
            # account says would make a text of a NULL, turn signs, or cut digits off.
            "SET intervalstyle = 'postgres'",
            "SET array_nulls = on",
            "SET standard_conforming_strings = on",
            "SET extra_float_digits = 1",
            # Else a crash of the server takes its last commits, with the marks. What else it says, as of
            # standbys, is kept.
            "SELECT set_config('synchronous_commit', 'local', false) "
            "WHERE current_setting('synchronous_commit') = 'off'",
            "SET client_min_messages = 'warning'",
            f"SET statement_timeout = {int(timeout * 1000)}",
            # Ahead of it, so that the error tells a lock from a statement that is too slow.
            f"SET lock_timeout = {int(timeout * 1000 * _LOCK_SHARE)}",
        ]
    seconds = max(1, int(timeout * _LOCK_SHARE))
    return [
        "SET time_zone = '+00:00'",
        # Strict: a value that does not fit is an error, never cut. An explicit 0 is no "next number".
        "SET sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO'",
        # As servers have them that nobody has told to guard people from their own statements.
        # SQLAlchemy reads quoted names.
        "SET sql_safe_updates = 0, sql_select_limit = 18446744073709551615, sql_quote_show_create = 1",
        # Ahead of the driver's own, which ends the session while the server works on. MySQL has no such time
        # for statements that change rows.
        f"SET innodb_lock_wait_timeout = LEAST(@@innodb_lock_wait_timeout, {seconds}), "
        f"lock_wait_timeout = LEAST(@@lock_wait_timeout, {seconds}) "
        f"/*M!100101 , max_statement_time = {timeout * 0.95:.3f} */",
    ]
