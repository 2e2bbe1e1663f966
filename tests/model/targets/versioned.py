"""Tables of ClickHouse, and indexes of OpenSearch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

from handlers.clickhouse import ClickHouseHandler
from handlers.elasticsearch import ElasticsearchHandler
from handlers.testing import opened

from ..source import Row
from ..writers.writing import Names
from .interface import Target, texts
from .reopening import reopened

_LIGHT = {"settings": {"number_of_replicas": 0, "refresh_interval": -1, "index.translog.durability": "async"}}
"""An index that costs less."""
_MOST_LEFT = 100


@contextmanager
def clickhouse_target(server: Any) -> Iterator[Target]:
    prefix = server.new_name()

    def rows(names: Names) -> list[Row]:
        place = f"{prefix}_{names.database}"
        found = server.query(
            f"SELECT count() FROM system.tables WHERE database = '{place}' AND name = '{names.table}'"
        )
        if found.strip() == "0":
            return []
        return [texts(row) for row in server.rows(f"{place}.{names.table}")]

    def forget(names: Names) -> None:
        server.query(f"DROP DATABASE IF EXISTS {prefix}_{names.database}")

    with reopened(
        lambda: opened(ClickHouseHandler(**server.options, database=f"{prefix}_{{database}}"))
    ) as handler:
        yield Target("clickhouse", handler, rows, forget, size=4, restart=handler.restart)


@contextmanager
def elasticsearch_target(node: Any) -> Iterator[Target]:
    prefix = node.new_name()
    left: list[str] = []
    node.call("PUT", f"/_index_template/{prefix}", {"index_patterns": [f"{prefix}_*"], "template": _LIGHT})

    def rows(names: Names) -> list[Row]:
        index = f"{prefix}_{names.database}.{names.table}"
        if not node.call("GET", f"/_cat/indices/{index}*?format=json"):
            return []
        found = node.documents(index, Decimal)
        for name, row in found.items():
            assert name == ":".join(str(row[part]) for part in names.key)
        return [texts(row) for row in found.values()]

    def forget(names: Names) -> None:
        left.append(f"{prefix}_{names.database}.{names.table}")
        if len(left) == _MOST_LEFT:
            node.remove(*left)
            left.clear()

    with reopened(
        lambda: opened(ElasticsearchHandler(url=node.url, index=f"{prefix}_{{database}}.{{table}}"))
    ) as handler:
        yield Target("elasticsearch", handler, rows, forget, size=6, restart=handler.restart)
        node.remove(*left)
