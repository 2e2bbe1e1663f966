"""Traces that wait until the offsets of their records are committed."""

from __future__ import annotations

import threading
from typing import Protocol, TypeVar

from worker.tracing.records import RecordTrace
from worker.units.assigned_partition import Assignment
from worker.units.chunk import Chunk

_MOST = 10_000
"""The most records and batches that wait at once; those of a table that stands still would have no end."""


class Trace(Protocol):
    """A record's or a batch's."""

    def committed(self, now: int) -> None: ...
    def left(self, now: int) -> None: ...


_Own = TypeVar("_Own", bound=Trace)


class Waiting:
    """Bounded. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards all below
        self._traces: dict[Assignment, dict[tuple[int, int], Trace]] = {}
        """By the last offset that the trace waits for, and 0 for a record, the id of a batch."""
        self._count = 0

    @property
    def full(self) -> bool:
        return self._count >= _MOST

    def add(self, assignment: Assignment, last: int, trace: _Own) -> _Own:
        """The trace waits until everything up to `last` is committed.

        Returns the one that waits: another piece of the same record may have added its own before."""
        with self._lock:
            key = last, 0 if isinstance(trace, RecordTrace) else id(trace)
            waits = self._traces.setdefault(assignment, {}).setdefault(key, trace)
            self._count += waits is trace
            return waits  # type: ignore[return-value]  # the key says which of the two it is

    def of(self, chunk: Chunk) -> list[RecordTrace]:
        """Those of the chunk's records that wait already: for another shard, or from before they were queued
        again."""
        if not chunk.messages or not self._traces.get(chunk.assignment):
            return []
        first, last = chunk.messages[0].offset(), chunk.messages[-1].offset()
        with self._lock:
            inside = [
                trace
                for (offset, _), trace in self._traces.get(chunk.assignment, {}).items()
                if first <= offset <= last and isinstance(trace, RecordTrace)
            ]
        offsets = {message.offset() for message in chunk.messages} if inside else ()
        return [trace for trace in inside if trace.place[2] in offsets]

    def assignments(self) -> list[Assignment]:
        with self._lock:
            return list(self._traces)

    def take(self, assignment: Assignment, end: int | None) -> list[Trace]:
        """Those below `end`, which wait no more; None: all of them."""
        with self._lock:
            traces = self._traces.get(assignment, {})
            done = [key for key in traces if end is None or key[0] < end]
            found = [traces.pop(key) for key in done]
            if not traces:
                self._traces.pop(assignment, None)
            self._count -= len(found)
        return found
