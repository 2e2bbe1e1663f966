"""Traces that wait until the offsets of their records are committed."""

from __future__ import annotations

import threading
from typing import Protocol, TypeVar

from worker.tracing.records import RecordTrace
from worker.units.assigned_partition import Assignment
from worker.units.chunk import Chunk

_MOST = 10_000
"""The most records and batches that wait at once. Without it, a blocked table's would grow without limit."""


class Trace(Protocol):
    """The trace of a record or a batch."""

    def committed(self, now: int) -> None: ...
    def left(self, now: int) -> None: ...


_Own = TypeVar("_Own", bound=Trace)


class Waiting:
    """A bounded collection. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards all fields below
        self._traces: dict[Assignment, dict[tuple[int, int], Trace]] = {}
        """The key: the last offset that the trace waits for, and the id of a batch (0 for a record)."""
        self._count = 0

    @property
    def full(self) -> bool:
        return self._count >= _MOST

    def add(self, assignment: Assignment, last: int, trace: _Own) -> _Own:
        """Let the trace wait until everything up to `last` is committed.

        Returns the waiting trace: another part of the same record may have added its own earlier."""
        with self._lock:
            key = last, 0 if isinstance(trace, RecordTrace) else id(trace)
            waits = self._traces.setdefault(assignment, {}).setdefault(key, trace)
            self._count += waits is trace
            return waits  # type: ignore[return-value]  # the key identifies the type

    def of(self, chunk: Chunk) -> list[RecordTrace]:
        """Return waiting traces of the chunk's records, from another shard or before a requeue."""
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
        """Remove and return the traces below `end`; None: all."""
        with self._lock:
            traces = self._traces.get(assignment, {})
            done = [key for key in traces if end is None or key[0] < end]
            found = [traces.pop(key) for key in done]
            if not traces:
                self._traces.pop(assignment, None)
            self._count -= len(found)
        return found
