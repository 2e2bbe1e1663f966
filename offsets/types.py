"""The words of this package. Offsets are Kafka's: a committed offset is the next one to read."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Checkpoint", "OffsetRange", "TopicPartition"]


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


class OffsetRange(NamedTuple):
    """Offsets from `first` up to, not including, `end`."""

    first: int
    end: int


class Checkpoint(NamedTuple):
    """What is finished of one partition.

    Every offset below `offset` is finished, and so are the `ahead` ranges beyond it (ascending, not touching
    each other, each beginning after `offset`).
    """

    offset: int
    ahead: tuple[OffsetRange, ...] = ()
