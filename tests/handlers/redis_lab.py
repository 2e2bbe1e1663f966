"""A database of a real Redis, and batches of the table shop.orders for the `redis` handler."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import redis

from handlers import Batch
from handlers.redis.handler import RedisHandler
from handlers.testing import make_batch, opened

__all__ = ["RedisLab", "orders"]


def orders(*changes: dict[str, Any], types: Any = None, key: Any = "id", table: str = "shop.orders") -> Batch:
    return make_batch(table, changes, key=key, types=types)


class RedisLab:
    def __init__(self, url: str) -> None:
        self.url = url
        self.client = redis.Redis.from_url(url, decode_responses=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()

    def apply(self, *batches: Batch, handles: Callable[[str], bool] | None = None, **options: Any) -> None:
        """By a handler of its own with these options."""
        with opened(RedisHandler(url=self.url, **options), handles=handles) as handler:
            for batch in batches:
                handler.handle(batch)
