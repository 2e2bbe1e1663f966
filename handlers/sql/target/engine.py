"""Connections to the target. Their sessions preserve values: UTC, strict mode, Unicode."""

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
"""Databases stored in one file."""
_CONNECT_SECONDS = 10
_LOCK_SHARE = 0.9
"""The share of a statement's timeout that it may wait for a lock."""
_LONGEST_IDLE_SECONDS = 1800
"""Servers and firewalls close idle connections: MySQL after 8 hours, most firewalls after one."""

_POSTGRESQL_BYTES = (1 << 30) - 100_000
"""Limit of the parameters of one statement: a message is smaller than 1 GiB."""
_MYSQL_TOO_LARGE = 1153
"""The server's code for a too large packet. A client may fail before it can read that answer."""


class PostgreSQLCursor(psycopg.Cursor[Any]):
    """Refuses statements so large that the server would close the connection as if it were down."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> PostgreSQLCursor:
        """Execute the statement. Raises psycopg's errors, and DataError if it is too large."""
        texts = [one for one in params if isinstance(one, str)] if isinstance(params, Sequence) else ()
        if sum(map(len, texts)) >= _POSTGRESQL_BYTES // 4:  # characters, of at most four bytes
            size = sum(len(one.encode()) for one in texts)
            if size >= _POSTGRESQL_BYTES:
                raise psycopg.DataError(f"its values take {size} bytes; PostgreSQL allows less than 1 GiB")
        return super().execute(query, params, **options)


class MySQLConnection(pymysql.Connection):
    """Refuses too large statements, as PostgreSQLCursor does."""

    _limit = 1 << 30
    is_outgrown = False
    """Whether a statement was too large. A session keeps its limit even if the server's is raised."""

    def connect(self, sock: socket | None = None) -> None:
        super().connect(sock)
        with self.cursor() as cursor:
            cursor.execute("SELECT @@max_allowed_packet")
            [self._limit] = cursor.fetchone() or [self._limit]

    def query(self, sql: str | bytes, unbuffered: bool = False) -> int:
        """Run the statement. Raises pymysql's errors, and DataError if it is too large."""
        encoded = sql.encode(self.encoding) if isinstance(sql, str) else sql
        size = len(encoded) + 1  # one byte for the command
        if size >= self._limit:
            self.is_outgrown = True
            raise pymysql.err.DataError(
                _MYSQL_TOO_LARGE,
                f"its statement takes {size} bytes, but the server accepts less than {self._limit}: raise "
                "max_allowed_packet in its configuration, or with SET GLOBAL",
            )
        return super().query(encoded, unbuffered)


def check_url(text: str) -> sa.URL:
    """Return the URL with binlane's driver for its database.

    Raises ValueError. Its text contains no part of the URL, which may contain a password."""
    try:
        url = make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        raise ValueError(f"it is not a database URL; allowed: {_ALLOWED}") from None
    backend, _, driver = url.drivername.partition("+")
    chosen = _DRIVERS.get(backend)
    if chosen is None or driver not in ("", chosen.partition("+")[2]):
        raise ValueError(f"there is no driver for such a database; allowed: {_ALLOWED}")
    if backend in _FILES and (
        url.database in (None, "", ":memory:") or "mode" in url.query or url.host is not None
    ):
        raise ValueError(f"{_FILES[backend]} needs a file, as in {backend}:///replica.db")
    if backend == "duckdb" and url.query:
        raise ValueError("a DuckDB URL has no settings, only the file's name")
    if backend == "duckdb" and importlib.util.find_spec("duckdb") is None:
        raise ValueError("DuckDB needs the package duckdb: pip install '.[duckdb]' in binlane's folder")
    if backend not in _FILES and not url.database and backend not in ("mysql", "mariadb"):
        raise ValueError("the URL names no database")
    return url.set(drivername=chosen)


def make_engine(url: sa.URL, *, folder: Path, pool_size: int, timeout: float) -> sa.Engine:
    """Return an engine that has not connected yet.

    `folder` is the base of a relative SQLite or DuckDB file. `timeout` is the seconds for one statement."""
    dialect = url.get_backend_name()
    options: dict[str, Any] = {"pool_size": pool_size, "pool_timeout": timeout}
    if dialect in _FILES:
        url = url.set(database=str(folder / str(url.database)))
        # Threads wait in turn: SQLite has one writer, and batches of DuckDB would conflict.
        options.update(pool_size=1, connect_args={"timeout": 30.0} if dialect == "sqlite" else {})
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
        # A read after a lock must see what others committed during the wait, whatever the default is.
        # MySQL's default also takes gap locks, with which batches of different tables would block each other.
        options["isolation_level"] = "READ COMMITTED"
    # hide_parameters keeps rows out of errors and logs.
    engine = sa.create_engine(
        url, max_overflow=0, pool_recycle=_LONGEST_IDLE_SECONDS, hide_parameters=True, **options
    )
    _set_sessions_up(engine, timeout)
    if dialect == "mysql":
        _heed_packets(engine)
    return engine


# Their drivers begin no transaction. After IMMEDIATE no one else can change what was read until the commit.
_BEGINNINGS = {"sqlite": "BEGIN IMMEDIATE", "duckdb": "BEGIN TRANSACTION"}


def _set_sessions_up(engine: sa.Engine, timeout: float) -> None:
    dialect = engine.dialect.name

    # insert=True: run before SQLAlchemy asks the first session for the quoting rules of all sessions.
    @sa.event.listens_for(engine, "connect", insert=True)
    def _connected(connection: Any, _: Any) -> None:
        if dialect == "sqlite":
            # The driver's own transactions begin too late and exclude DDL.
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
            # Formats in which values are read and written as text. Settings of the server, database or
            # account could turn NULL into a text, change signs or cut digits.
            "SET intervalstyle = 'postgres'",
            "SET array_nulls = on",
            "SET standard_conforming_strings = on",
            "SET extra_float_digits = 1",
            # With `off`, a crash of the server loses its last commits together with the marks. Other values,
            # for example for standbys, are kept.
            "SELECT set_config('synchronous_commit', 'local', false) "
            "WHERE current_setting('synchronous_commit') = 'off'",
            "SET client_min_messages = 'warning'",
            f"SET statement_timeout = {int(timeout * 1000)}",
            # Shorter, so that a lock and a slow statement give different errors.
            f"SET lock_timeout = {int(timeout * 1000 * _LOCK_SHARE)}",
        ]
    seconds = max(1, int(timeout * _LOCK_SHARE))
    return [
        "SET time_zone = '+00:00'",
        # Strict: a value that does not fit is an error and never cut. An explicit 0 stays 0.
        "SET sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO'",
        # The defaults, because servers may be set to protect people from their own statements.
        # SQLAlchemy needs quoted names.
        "SET sql_safe_updates = 0, sql_select_limit = 18446744073709551615, sql_quote_show_create = 1",
        # Shorter than the driver's timeout, which ends the session while the server continues. MySQL has no
        # time limit for statements that change rows (MariaDB has max_statement_time).
        f"SET innodb_lock_wait_timeout = LEAST(@@innodb_lock_wait_timeout, {seconds}), "
        f"lock_wait_timeout = LEAST(@@lock_wait_timeout, {seconds}) "
        f"/*M!100101 , max_statement_time = {timeout * 0.95:.3f} */",
    ]
