"""Keys of Redis."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from handlers.redis.handler import RedisHandler
from handlers.testing import opened

from ..source import Row
from ..told import Limits
from ..writers.writing import Names
from .interface import Target, texts
from .reopening import reopened


@contextmanager
def redis_target(url: str, *, key: str = "{database}:{table}:{key}", **options: Any) -> Iterator[Target]:
    with (
        redis.Redis.from_url(url, decode_responses=True) as client,
        reopened(lambda: opened(RedisHandler(url=url, key=key, **options))) as handler,
    ):
        is_json = options.get("value") == "json"

        def rows(names: Names) -> list[Row]:
            found = []
            for name in client.scan_iter(f"{names.database}:{names.table}:*"):
                text = client.get(name) if is_json else None
                row = client.hgetall(name) if text is None else json.loads(str(text))
                found.append(texts(row))
                wanted = key.replace("{key}", ":".join(found[-1].get(part, "?") for part in names.key))
                assert name == wanted.format(database=names.database, table=names.table, **found[-1])
            return found

        yield Target(
            "redis",
            handler,
            rows,
            lambda _: _flush(client),
            # A truncate leaves rows of tools that do not tell of it, and their keys tell nothing of new ones.
            Limits(needs_old_rows="{region}" in key, truncates="{region}" not in key),
            restart=handler.restart,
        )


def _flush(client: Any) -> None:
    client.flushdb()
