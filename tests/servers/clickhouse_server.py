"""ClickHouse for tests: its own engine in a process that can be killed, with the HTTP interface."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, ClassVar

import plain_http
from servers.server_process import HOST, PASSWORD, USER, ServerProcess

__all__ = ["ClickHouseServer"]

_OWN = "_version, _deleted, _partition, _source_time_ms"
_ENGINE = Path(__file__).with_name("clickhouse_engine.py")


class ClickHouseServer(ServerProcess):
    """What was written stays over restarts and kills."""

    package: ClassVar[str] = "clickhouse"
    unprivileged: ClassVar[bool] = False  # another account need not be able to read the engine

    def __init__(self) -> None:
        super().__init__()
        self._names = 0

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        """Of a handler's entry."""
        return {"url": self.url, "username": USER, "password": PASSWORD}

    def new_name(self) -> str:
        """For a database that no other test has."""
        self._names += 1
        return f"db{self._names}"

    def query(self, sql: str) -> str:
        """What it answers, which has to be 200."""
        headers = {"X-ClickHouse-User": USER, "X-ClickHouse-Key": PASSWORD}
        answer = plain_http.post(self.url, content=sql.encode(), headers=headers, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.text

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows as they are now, without the columns that tell of their origin; fractions as text."""
        found = self.query(
            f"SELECT * EXCEPT ({_OWN}) FROM {table} FINAL ORDER BY ALL "
            "SETTINGS output_format_decimal_trailing_zeros = 1 FORMAT JSONEachRow"
        )
        return [json.loads(line, parse_float=str) for line in found.splitlines()]

    def command(self) -> list[str]:
        data = self.directory / "data"
        return [sys.executable, str(_ENGINE), str(data), str(self.port), USER, PASSWORD]

    def ping(self) -> bool:
        return self.query("SELECT 1 FORMAT TSV") == "1\n"
