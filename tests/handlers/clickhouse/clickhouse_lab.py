"""A handler of ClickHouse's, and what its table `t` holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from servers.clickhouse_server import ClickHouseServer

from handlers.clickhouse import ClickHouseHandler
from handlers.testing import opened

__all__ = ["TYPES", "handler", "names"]

TYPES = {"id": "int", "name": "varchar(40)"}


@contextmanager
def handler(server: ClickHouseServer, **options: Any) -> Iterator[ClickHouseHandler]:
    """Opened."""
    with opened(ClickHouseHandler(**server.options, **options)) as made:
        yield made


def names(server: ClickHouseServer, database: str) -> dict[int, str]:
    """Id -> name of the rows."""
    return {row["id"]: row["name"] for row in server.rows(f"{database}.t")}
