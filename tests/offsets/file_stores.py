"""Checkpoint files for tests."""

from __future__ import annotations

from offsets.stores.file import FileStore
from offsets.types import OffsetRange, TopicPartition

__all__ = ["AHEAD", "SHOP", "STOCK", "reopened"]

SHOP = TopicPartition("cdc.shop", 0)
STOCK = TopicPartition("cdc.stock", 3)
AHEAD = (OffsetRange(12, 15), OffsetRange(20, 21))


def reopened(store: FileStore) -> FileStore:
    return FileStore(store.path.parent, "replica")
