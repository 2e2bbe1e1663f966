"""Rows of several databases in one table: each is its own, and nothing hidden is there."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
from gathered_stream import HIDDEN, ROWS, batches
from servers.clickhouse_server import ClickHouseServer
from servers.redis_node import RedisNode
from servers.search_node import SearchNode

from handlers.clickhouse import ClickHouseHandler
from handlers.elasticsearch import ElasticsearchHandler
from handlers.redis.handler import RedisHandler
from handlers.sql import SqlHandler
from handlers.testing import opened


def written(handler: Any, read: Callable[[], list[dict[str, Any]]]) -> None:
    for _ in range(2):  # as after a crash
        with opened(handler) as made:
            for batch in batches():
                made.handle(batch)
    found = read()
    rows = [{name: row.get(name) for name in ROWS[0]} for row in found]
    assert sorted(rows, key=repr) == sorted(ROWS, key=repr)
    assert HIDDEN not in repr(found)
    assert not any("ssn" in row for row in found)


def test_in_redis(redis_server: RedisNode) -> None:
    url = redis_server.new_database("gathered-rows")

    def read() -> list[dict[str, Any]]:
        with redis.Redis.from_url(url, decode_responses=True) as client:
            found = [client.hgetall(key) for key in client.scan_iter("*")]
        return [
            {name: int(value) if name in ("n", "more") else value for name, value in row.items()}
            for row in found
        ]

    written(RedisHandler(url=url), read)


def test_in_clickhouse(clickhouse: ClickHouseServer) -> None:
    prefix = clickhouse.new_name()
    written(
        ClickHouseHandler(**clickhouse.options, database=f"{prefix}_{{database}}"),
        lambda: clickhouse.rows(f"{prefix}_shops.users"),
    )


def test_in_elasticsearch(search_node: SearchNode) -> None:
    prefix = search_node.new_name()
    written(
        ElasticsearchHandler(url=search_node.url, index=f"{prefix}-{{database}}.{{table}}"),
        lambda: list(search_node.documents(f"{prefix}-shops.users", str).values()),
    )


def test_in_sqlite(tmp_path: Path) -> None:
    def read() -> list[dict[str, Any]]:
        with sqlite3.connect(tmp_path / "t.db") as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute('SELECT * FROM "shops.users"')]

    written(SqlHandler(url=f"sqlite:///{tmp_path}/t.db"), read)
