"""Every target that keeps rows or changes, as the shared suite sees it: its entry, and what is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import redis
import sqlalchemy as sa
from servers.clickhouse_server import ClickHouseServer
from servers.s3_server import S3Server
from servers.search_node import SearchNode

from handlers.sql.naming import Naming
from handlers.sql.target.engine import make_engine

__all__ = [
    "Rows",
    "Target",
    "clickhouse_target",
    "files_target",
    "redis_target",
    "s3_target",
    "search_target",
    "sql_target",
]

Rows = dict[str, dict[str, str]]
"""The text of a row's key -> its columns that are not null, as text."""


@dataclass(frozen=True)
class Target:
    """One place that a handler writes to."""

    entry: Mapping[str, Any]
    """Of the configuration."""
    rows: Callable[[str], Rows]
    """What a table ("shop.orders") holds. Fails where a change is there twice."""
    down: Callable[[], Any] | None = None
    """A context in which the target is away; None: it has no server."""
    follows_ddl: bool = True
    stored: Callable[[str], list[dict[str, Any]]] = lambda _: []
    """All that its table stores, as the driver reads it, of targets that keep histories."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What a worker needs besides."""


def _texts(rows: Mapping[Any, Mapping[str, Any]]) -> Rows:
    return {
        str(key): {name: str(value) for name, value in row.items() if value is not None}
        for key, row in rows.items()
    }


def sql_target(url: str, folder: Path, server: Any = None, **options: Any) -> Target:
    """`server`: the database's own process, which a test may end."""
    parsed = sa.make_url(url)
    dialect = parsed.get_backend_name()
    naming = Naming.of(dialect, options.get("schema"), options.get("table"))

    def stored(table: str) -> list[dict[str, Any]]:
        engine = make_engine(parsed, folder=folder, pool_size=1, timeout=30)
        try:
            schema, name = naming.target(*table.split("."))
            with engine.connect() as connection:
                quote = connection.dialect.identifier_preparer
                whole = quote.format_table(sa.table(name, schema=schema))
                return list(map(dict, connection.exec_driver_sql(f"SELECT * FROM {whole}").mappings()))
        finally:
            engine.dispose()

    def rows(table: str) -> Rows:
        found = stored(table)
        assert len(found) == len({row["id"] for row in found})
        return _texts({row["id"]: row for row in found})

    shown = parsed.render_as_string(hide_password=False).replace("+binlane", "")
    down = None if server is None else lambda: _stopped(server)
    return Target({"type": "sql", "url": shown, **options}, rows, down, stored=stored)


@contextmanager
def _stopped(server: Any) -> Iterator[None]:
    server.stop()
    yield
    server.start()


def redis_target(url: str, server: Any = None) -> Target:
    def rows(table: str) -> Rows:
        start = f"{table.replace('.', ':')}:"
        with redis.Redis.from_url(url, decode_responses=True) as client:
            return {key.removeprefix(start): client.hgetall(key) for key in client.scan_iter(f"{start}*")}

    down = None if server is None else lambda: _stopped(server)
    return Target({"type": "redis", "url": url}, rows, down, follows_ddl=False)


def search_target(node: SearchNode, server: Any = None) -> Target:
    """`server`: the node, where a test may end it."""
    prefix = node.new_name()

    def rows(table: str) -> Rows:
        return _texts(node.documents(f"{prefix}-{table}", str))

    down = None if server is None else lambda: _stopped(server)
    entry = {"type": "opensearch", "url": node.url, "index": f"{prefix}-{{database}}.{{table}}"}
    return Target(entry, rows, down, follows_ddl=False)


def clickhouse_target(shared: ClickHouseServer, server: Any = None) -> Target:
    """`server`: the server, where a test may end it."""
    prefix = shared.new_name()

    def stored(table: str) -> list[dict[str, Any]]:
        database, name = table.split(".")
        return shared.rows(f"{prefix}_{database}.{name}")

    def rows(table: str) -> Rows:
        found = stored(table)
        assert len(found) == len({row["id"] for row in found})
        return _texts({row["id"]: row for row in found})

    down = None if server is None else lambda: _stopped(server)
    entry = {"type": "clickhouse", **shared.options, "database": f"{prefix}_{{database}}"}
    return Target(entry, rows, down, follows_ddl=False, stored=stored)


def files_target(folder: Path) -> Target:
    def rows(table: str) -> Rows:
        found = sorted((folder / "raw" / table.replace(".", "/")).rglob("*.parquet"))
        return _folded([row for path in found for row in pq.ParquetFile(path).read().to_pylist()])

    entry = {"type": "files", "format": "parquet", "directory": str(folder / "raw")}
    return Target(entry, rows, follows_ddl=False)


def s3_target(server: S3Server) -> Target:
    bucket = server.new_bucket()

    def rows(table: str) -> Rows:
        client, found = server.client(bucket), []
        for page in obstore.list(client, f"raw/{table.replace('.', '/')}/"):
            for one in page:
                data = bytes(obstore.get(client, one["path"]).bytes())
                found += pq.ParquetFile(pa.BufferReader(data)).read().to_pylist()
        return _folded(found)

    @contextmanager
    def down() -> Iterator[None]:
        server.is_away = True
        try:
            yield
        finally:
            server.is_away = False

    entry = {"type": "files", "format": "parquet", "directory": f"s3://{bucket}/raw"}
    return Target(entry, rows, down, follows_ddl=False, environment=server.environment)


def _folded(changes: list[dict[str, Any]]) -> Rows:
    """The rows that all changes come to, each of which may be there once."""
    places = [(row["_topic"], row["_partition"], row["_offset"], row["_index"]) for row in changes]
    assert len(places) == len(set(places)), "a change is there twice"
    rows: dict[Any, Mapping[str, Any]] = {}
    for _, change in sorted(zip(places, changes, strict=True), key=lambda one: one[0]):
        if change["_op"] == "delete":
            rows.pop(change["id"], None)
        elif change["_op"] not in ("ddl", "truncate"):
            rows[change["id"]] = {name: value for name, value in change.items() if name[0] != "_"}
    return _texts(rows)
