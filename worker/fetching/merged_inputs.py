"""The partitions that `SourceOrder` merges: what each holds, and how their records are ordered."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from worker.formats.interface import Record, SeparateDDL
from worker.partitions.stage import Run
from worker.units.assigned_partition import Assignment
from worker.units.chunk import RECORD_OVERHEAD

_Key = tuple[tuple[int, ...], int]
"""(place in the log, Kafka's timestamp in ms). The timestamp decides if records have no place."""

_BEFORE_ALL: _Key = ((), -1)


@dataclass(slots=True, eq=False)
class Held:
    key: _Key
    barrier: bool
    message: Record
    came: float


@dataclass(slots=True, eq=False)
class Input:
    """One partition."""

    assignment: Assignment
    format: SeparateDDL
    has_ddl: bool
    number: int
    held: deque[Held] = field(default_factory=deque)
    bytes: int = 0
    stream: str | None = None
    """The stream of its last record; None until one has named it."""
    is_mixed: bool = False
    """Whether it has records of several streams, whose places do not compare."""
    is_logged: bool = True
    """False: so far, it has only marks (see `is_mark`), which have no place. It counts as read to its end."""
    reached: _Key = _BEFORE_ALL
    passed: _Key = _BEFORE_ALL
    """The key of the last record that was passed on."""
    next_offset: int = 0
    end: int | None = None
    """The offset of its end, while it is read to its end."""
    high: int | None = None
    """The broker's end at that moment. If it has grown, more records are on their way."""


def is_same_log(one: Input, other: Input) -> bool:
    return one.stream is None or other.stream is None or one.stream == other.stream


def count_before(one: Input, count: int, first: Held) -> int:
    """Return how many of its first `count` records do not come after `first`."""
    for number, held in enumerate(itertools.islice(one.held, count)):
        if held.key > first.key or (held.key == first.key and first.barrier and not held.barrier):
            return number
    return count


def take(one: Input, count: int) -> list[Held]:
    taken = [one.held.popleft() for _ in range(count)]
    one.passed = taken[-1].key if taken else one.passed
    one.bytes -= sum(len(held.message) + RECORD_OVERHEAD for held in taken)
    return taken


def in_order(ready: list[tuple[Input, list[Held]]]) -> Iterator[Run]:
    """Yield barriers in order, and before each one, by partition, the rows that precede it."""
    rows: dict[Assignment, list[Record]] = {}
    # Barriers first if equal: a snapshot's DDL has the place of its rows.
    sources = (
        [(rec.key, not (rec.barrier or one.has_ddl), one.number, n, rec, one) for n, rec in enumerate(run)]
        for one, run in ready
    )
    for _key, _row, _number, _n, held, one in heapq.merge(*sources):
        if held.barrier:
            yield from rows.items()
            rows = {}
            yield one.assignment, [held.message]
        else:
            rows.setdefault(one.assignment, []).append(held.message)
    yield from rows.items()
