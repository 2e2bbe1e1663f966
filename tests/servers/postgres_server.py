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


_END_OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
_MORE_THAN_SCHEMAS = (
    "SELECT EXISTS (SELECT FROM pg_extension WHERE extname <> 'plpgsql') "
    "OR EXISTS (SELECT FROM pg_publication) OR EXISTS (SELECT FROM pg_event_trigger) "
    "OR EXISTS (SELECT FROM pg_largeobject_metadata) "
    "OR EXISTS (SELECT FROM pg_prepared_xacts WHERE database = current_database()) "
    "OR EXISTS (SELECT FROM pg_db_role_setting WHERE setdatabase <> 0) "
    "OR EXISTS (SELECT FROM pg_default_acl) OR EXISTS (SELECT FROM pg_foreign_data_wrapper) "
    "OR EXISTS (SELECT FROM pg_cast WHERE oid >= 16384) OR EXISTS (SELECT FROM pg_am WHERE oid >= 16384) "
    "OR EXISTS (SELECT FROM pg_database WHERE datname = current_database() AND datacl IS NOT NULL)"
)
_EMPTY = """DO $$ DECLARE found name; BEGIN
  FOR found IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema$)' LOOP
    EXECUTE format('DROP SCHEMA %I CASCADE', found);
  END LOOP;
  CREATE SCHEMA public AUTHORIZATION pg_database_owner;
  GRANT USAGE ON SCHEMA public TO PUBLIC;
END $$"""


class PostgresServer(ServerProcess):
    """A PostgreSQL cluster: UTF-8, C collation, UTC, a superuser with a password."""

    def __init__(self, port: int | None = None) -> None:
        super().__init__(port)
        self._made: set[str] = set()

    package: ClassVar[str] = "postgresql"
    quick_stop: ClassVar[signal.Signals] = signal.SIGINT

    @property
    def url(self) -> str:
        return self._url("postgres")

    def new_database(self, name: str) -> str:
        """An empty database of this name, in place of an earlier one; its URL."""
        if name not in self._made or not self._emptied(name):
            with psycopg.connect(self._dsn("postgres"), autocommit=True) as connection:
                connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} (FORCE)").format(sql.Identifier(name)))
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            self._made.add(name)
        return self._url(name)

    def _emptied(self, name: str) -> bool:
        """For a sixth of what a new one costs. False: it has more than schemas, or is gone."""
        try:
            with psycopg.connect(self._dsn(name), autocommit=True) as connection:
                connection.execute(_END_OTHERS)
                [more] = connection.execute(_MORE_THAN_SCHEMAS).fetchone() or (True,)
                if not more:
                    connection.execute(_EMPTY)
        except psycopg.OperationalError:
            return False
        return not more

    def prepare(self) -> None:
        password = self.write("password", PASSWORD)
        self.run(
            [
                *(self.program("initdb", *_PROGRAMS), "--pgdata=data", f"--username={USER}"),
                *(f"--pwfile={password}", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"),
                "--no-sync",
            ]
        )

    def use_up_transactions(self) -> None:
        """Restart it as after two thousand million transactions without a VACUUM: it refuses what writes. A
        replication slot holds back the VACUUM that it starts by itself to mend this."""
        with psycopg.connect(self._dsn("postgres"), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET wal_level = logical")
        self.restart()
        with psycopg.connect(self._dsn("postgres"), autocommit=True) as connection:
            connection.execute("SELECT pg_create_logical_replication_slot('holds_back', 'pgoutput')")
        self.stop()
        number = 2**31 - 2_000_000
        self.run([self.program("pg_resetwal", *_PROGRAMS), "-D", "data", "-x", str(number)])
        self.run(["truncate", "--size=256K", f"data/pg_xact/{number >> 20:04X}"])
        self.start()

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
