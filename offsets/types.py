"""The terms of this package. Offsets are Kafka's: a committed offset is the next one to read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    """Return how many offsets the ranges contain."""
    return sum(end - first for first, end in ranges)


def joined(pieces: Iterable[Sequence[OffsetRange]]) -> list[OffsetRange]:
    """Join the ranges of pieces that ascend by their first. Only the ends of two pieces can touch."""
    found: list[OffsetRange] = []
    for ranges in pieces:
        if found and ranges[0].first <= found[-1].end:
            first, end = found.pop()
            found.append(OffsetRange(first, max(end, ranges[0].end)))
            found += ranges[1:]
        else:
            found += ranges
    return found


class Checkpoint(NamedTuple):
    """What is finished of one partition.

    Every offset below `offset` is finished, and so are the `ahead` ranges beyond it (ascending, not touching
    each other, each starting after `offset`)."""

    offset: int
    ahead: tuple[OffsetRange, ...] = ()
    topic_id: str | None = None
    """Kafka's id of the topic whose offsets these are, as text; None if it is unknown."""
    began_with: int | None = None
    """How many partitions the topic had when the group began to read it (0: it was recreated since); None if
    unknown."""


class Mark(NamedTuple):
    """Identifies a commit in Kafka."""

    offset: int
    checksum: int | None
    """CRC-32 of the commit's metadata. None, as in older files, equals no commit."""

    @property
    def is_bare(self) -> bool:
        """Whether the commit has no metadata: it then equals any other at its offset."""
        return self.checksum == 0


class Committed(NamedTuple):
    """Kafka's commit of one partition for the group."""

    checkpoint: Checkpoint
    mark: Mark
