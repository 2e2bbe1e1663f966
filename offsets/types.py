"""The words of this package. Offsets are Kafka's: a committed offset is the next one to read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


class OffsetRange(NamedTuple):
    """Offsets from `first` up to, not including, `end`."""

    first: int
    end: int


def count_of(ranges: Iterable[OffsetRange]) -> int:
    """How many offsets they hold."""
    return sum(end - first for first, end in ranges)


class Checkpoint(NamedTuple):
    """What is finished of one partition.

    Every offset below `offset` is finished, and so are the `ahead` ranges beyond it (ascending, not touching
    each other, each beginning after `offset`).
    """

    offset: int
    ahead: tuple[OffsetRange, ...] = ()
    topic_id: str | None = None
    """Kafka's id of the topic whose offsets these are, as text; None: it is not known."""
    began_with: int | None = None
    """How many partitions the topic had when the group began to read it (0: it was made anew since); None: it
    is not known."""


class Mark(NamedTuple):
    """By which a commit in Kafka is told from any other."""

    offset: int
    checksum: int | None
    """CRC-32 of the commit's metadata; None, as older files have it, is like no commit."""

    @property
    def is_bare(self) -> bool:
        """Whether the commit has no metadata: then it is like any other at its offset."""
        return self.checksum == 0


class Committed(NamedTuple):
    """What Kafka holds of one partition of the group."""

    checkpoint: Checkpoint
    mark: Mark
