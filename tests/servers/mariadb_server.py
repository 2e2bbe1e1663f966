"""MariaDB for tests."""

from __future__ import annotations

import os
import pwd
from typing import Any, ClassVar

import pymysql
from servers.server_process import HOST, PASSWORD, USER, ServerProcess

__all__ = ["MariaDBServer"]

# Nothing here must outlive a power cut of the machine; a killed server keeps all that was committed.
_SETTINGS = {
    "bind-address": HOST,
    "skip-name-resolve": "ON",
    "innodb-flush-log-at-trx-commit": "2",
    "innodb-flush-method": "nosync",
    "innodb-buffer-pool-size": "64M",
    "innodb-log-file-size": "32M",
    "sync-binlog": "0",
    "character-set-server": "utf8mb4",
    "collation-server": "utf8mb4_bin",
    "default-time-zone": "+00:00",
    "lower-case-table-names": "0",
    "performance-schema": "OFF",
}


class MariaDBServer(ServerProcess):
    """A MariaDB server: utf8mb4, UTC, strict SQL mode (its default), a user who may do all."""

    package: ClassVar[str] = "mariadb-server"
    settings: ClassVar[dict[str, str]] = _SETTINGS

    @property
    def url(self) -> str:
        return self._url("test")

    def new_database(self, name: str) -> str:
        """An empty database of this name, in place of an earlier one; its URL."""
        quoted = "`" + name.replace("`", "``") + "`"
        connection = pymysql.connect(**self._login(), charset="utf8mb4")
        with connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {quoted}")
            cursor.execute(f"CREATE DATABASE {quoted}")
        return self._url(name)

    def prepare(self) -> None:
        data = self.directory / "data"
        install = [self.program("mariadb-install-db"), "--no-defaults", f"--datadir={data}"]
        # The account as it is: what the script does for root (chown, su) is done already.
        install += [f"--tmpdir={self.directory}"]  # its account need not be able to write elsewhere
        install += [f"--user={pwd.getpwuid(self.directory.stat().st_uid).pw_name}"]
        install += ["--skip-test-db", "--auth-root-authentication-method=normal", "--skip-name-resolve"]
        self.run([*install, "--innodb-flush-method=nosync", "--innodb-log-file-size=32M"])
        self.write(
            "first.sql",
            "CREATE DATABASE IF NOT EXISTS test;\n"
            f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n",
        )

    def command(self) -> list[str]:
        settings = [f"--{name}={value}" for name, value in self.settings.items()]
        folder = self.directory
        return [
            *(self.program("mariadbd"), "--no-defaults", f"--datadir={folder / 'data'}"),
            *(f"--port={self.port}", f"--socket={_socket(folder)}", f"--pid-file={folder / 'pid'}"),
            *(f"--init-file={folder / 'first.sql'}", f"--tmpdir={folder}", *settings),
        ]

    def ping(self) -> bool:
        pymysql.connect(**self._login(), connect_timeout=2).close()
        return True

    def _login(self) -> dict[str, Any]:
        return {"host": HOST, "port": self.port, "user": USER, "password": PASSWORD, "ssl_disabled": True}

    def _url(self, database: str) -> str:
        # Else each connection reads all of the system's certificates first, in 50 ms of CPU.
        options = "charset=utf8mb4&ssl_disabled=true"
        return f"mysql+pymysql://{USER}:{PASSWORD}@{HOST}:{self.port}/{database}?{options}"


def _socket(folder: object) -> str:
    # The working folder is `folder`: a relative path stays below the 107 bytes of a socket's name.
    return "socket" if len(os.fspath(str(folder))) > 90 else f"{folder}/socket"
