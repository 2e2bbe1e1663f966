"""A `files` handler that writes Parquet, and what a loader of its folder would read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from handlers import Batch
from handlers.files.handler import FilesHandler
from handlers.testing import make_batch, opened

__all__ = ["HOUR_MS", "NOON_MS", "Lake", "orders", "part"]

HOUR_MS = 3_600_000
NOON_MS = 1_763_035_200_000  # 2025-11-13T12:00:00Z
TYPES = {"id": "int", "n": "int"}


class Lake:
    """A folder; each `handler` is another process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def handler(self, **options: Any) -> Iterator[FilesHandler]:
        context = {name: options.pop(name) for name in ("partitions", "metrics") if name in options}
        made = FilesHandler(directory="lake", format="parquet", **options)
        with opened(made, self.folder, worker="w", **context) as handler:
            yield handler

    def files(self, table: str = "shop/orders") -> list[Path]:
        return sorted(self.folder.glob(f"lake/{table}/*/*/*.parquet"))

    def names(self, table: str = "shop/orders") -> list[str]:
        """Below the table's folder."""
        return [str(path.relative_to(self.folder / "lake" / table)) for path in self.files(table)]

    def rows(self, table: str = "shop/orders") -> list[dict[str, Any]]:
        """In the order of their places."""
        found = [row for path in self.files(table) for row in pq.ParquetFile(path).read().to_pylist()]
        return sorted(
            found, key=lambda row: (row["_topic"], row["_partition"], row["_offset"], row["_index"])
        )

    def places(self, table: str = "shop/orders") -> list[tuple[int, int]]:
        return [(row["_offset"], row["_index"]) for row in self.rows(table)]


def orders(first: int, count: int = 1, *, time_ms: int = NOON_MS, every_ms: int = 0, **fields: Any) -> Batch:
    """Inserts of shop.orders, whose offsets and ids are one number."""
    rows = [
        {"after": {"id": number, "n": 0}, "source_time_ms": time_ms + every_ms * (number - first)}
        for number in range(first, first + count)
    ]
    settings = {"key": "id", "types": TYPES, "topic": "cdc", "offset": first, **fields}
    return make_batch("shop.orders", rows, **settings)


def part(batch: Batch, start: int, stop: int, *, shard: int | None = None) -> Batch:
    """Some of its changes, as another cut."""
    return Batch(
        batch.table,
        batch.changes[start:stop],
        database=batch.database,
        name=batch.name,
        topic_ids=batch.topic_ids,
        shard=shard,
    )
