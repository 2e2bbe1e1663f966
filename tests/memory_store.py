"""Checkpoints that last as long as the process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from offsets.types import Checkpoint, TopicPartition

__all__ = ["MemoryStore", "loaded"]


class MemoryStore:
    """A checkpoint store without a disk."""

    name = "memory"

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _checkpoints
        self._checkpoints: dict[TopicPartition, Checkpoint] = {}

    def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Checkpoint]:
        with self._lock:
            return {
                partition: self._checkpoints[partition]
                for partition in partitions
                if partition in self._checkpoints
            }

    def save(self, checkpoints: Mapping[TopicPartition, Checkpoint]) -> None:
        with self._lock:
            self._checkpoints.update(checkpoints)

    def close(self) -> None:
        """Nothing to let go of."""


def loaded(store: Any, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Checkpoint]:
    """The checkpoints of these partitions in a store of any kind."""
    if isinstance(store, MemoryStore):
        return store.load(partitions)
    found = store.load_committed(partitions) if store.name == "kafka" else store.load_entries(partitions)
    return {partition: each.checkpoint for partition, each in found.items()}
