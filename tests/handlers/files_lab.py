"""A `files` handler on a folder of a test's own, and what a loader of that folder would see."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from handlers import Batch, Change, HandlerContext
from handlers.files.handler import FilesHandler

__all__ = ["Clock", "batch", "change", "context", "finished", "offsets", "opened", "parts"]

NOON = 1795262400.0  # 2026-11-21T12:00:00Z


def change(offset: int, **fields: Any) -> Change:
    whole: dict[str, Any] = {
        "op": "insert",
        "before": None,
        "after": {"id": offset, "name": f"row {offset}"},
        "key_columns": ("id",),
        "sql": None,
        "source_time_ms": 1763000000000,
        "topic": "cdc.shop",
        "partition": 0,
        "offset": offset,
        "index": 0,
        "transaction": None,
        "types": None,
    }
    return Change(**(whole | fields))


def batch(first: int, count: int = 1, *, database: str = "shop", name: str = "orders") -> Batch:
    changes = [change(offset) for offset in range(first, first + count)]
    return Batch(f"{database}.{name}", changes, database=database, name=name)


def context(folder: Path) -> HandlerContext:
    return HandlerContext(worker="shop-replica", handler="files", folder=folder)


class Clock:
    now = NOON

    def __call__(self) -> float:
        return self.now


@contextmanager
def opened(folder: Path, clock: Clock | None = None, **options: Any) -> Iterator[FilesHandler]:
    handler = FilesHandler(directory="lake", **options)
    handler.clock = clock or Clock()
    handler.open(context(folder))
    try:
        yield handler
    finally:
        handler.close()


def finished(folder: Path) -> list[Path]:
    """What a loader would take: names that are not hidden, in their order."""
    return sorted(path for path in folder.glob("lake/*/*/*") if not path.name.startswith("."))


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("lake/*/*/.*"))


def offsets(*paths: Path) -> list[int]:
    texts = [gzip.decompress(p.read_bytes()) if ".gz" in p.suffixes else p.read_bytes() for p in paths]
    return [json.loads(line)["offset"] for text in texts for line in text.splitlines()]
