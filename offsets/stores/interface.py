"""What a checkpoint store must do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from offsets.types import Checkpoint, TopicPartition

__all__ = ["CheckpointError", "CheckpointStore"]


class CheckpointError(Exception):
    """A store could not be read or written. The text says which, where, why, and what to do about it."""


class CheckpointStore(Protocol):
    """Remembers what is finished of each partition. Safe to use from several threads."""

    @property
    def name(self) -> str:
        """`memory`, `file` or `kafka`: the metrics' label `store`."""
        ...

    def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Checkpoint]:
        """What the store knows of these partitions; one that it does not know is left out.

        Raises:
            CheckpointError: the store cannot be read.
        """
        ...

    def save(self, checkpoints: Mapping[TopicPartition, Checkpoint]) -> object:
        """Replace what is remembered of these partitions; other partitions stay as they are.

        On return it is as durable as this store can make it. All or nothing, as far as the store can.

        Raises:
            CheckpointError: it is not known to be saved. What was remembered before still counts.
        """
        ...

    def close(self) -> None:
        """Let go of threads and files. May be called twice."""
        ...
