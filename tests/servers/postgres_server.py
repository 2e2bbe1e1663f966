"""PostgreSQL for tests."""

from __future__ import annotations

import signal
from typing import ClassVar

import psycopg
from psycopg import sql
from servers.server_process import HOST, PASSWORD, USER, ServerProcess

__all__ = ["PostgresServer"]

_PROGRAMS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin")
# Nothing here must outlive a power cut of the machine; a killed server keeps all that was committed.
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_min_messages": "warning",
    "autovacuum": "off",
    "jit": "off",
}


class PostgresServer(ServerProcess):
    """A PostgreSQL cluster: UTF-8, C collation, UTC, a superuser with a password."""

    package: ClassVar[str] = "postgresql"
    quick_stop: ClassVar[signal.Signals] = signal.SIGINT

    @property
    def url(self) -> str:
        return self._url("postgres")

    def new_database(self, name: str) -> str:
        """An empty database of this name, in place of an earlier one; its URL."""
        with psycopg.connect(self._dsn("postgres"), autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} (FORCE)").format(sql.Identifier(name)))
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self._url(name)

    def prepare(self) -> None:
        password = self.write("password", PASSWORD)
        self.run(
            [
                *(self.program("initdb", *_PROGRAMS), "--pgdata=data", f"--username={USER}"),
                *(f"--pwfile={password}", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"),
                "--no-sync",
            ]
        )

    def command(self) -> list[str]:
        settings = [f"--{name}={value}" for name, value in _SETTINGS.items()]
        return [self.program("postgres", *_PROGRAMS), "-D", "data", f"--port={self.port}", *settings]

    def ping(self) -> bool:
        with psycopg.connect(self._dsn("postgres"), connect_timeout=2) as connection:
            return connection.execute("SELECT 1").fetchone() == (1,)

    def _dsn(self, database: str) -> str:
        return f"postgresql://{USER}:{PASSWORD}@{HOST}:{self.port}/{database}"

    def _url(self, database: str) -> str:
        return f"postgresql+psycopg://{USER}:{PASSWORD}@{HOST}:{self.port}/{database}"
