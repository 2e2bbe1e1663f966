"""Traces that wait until the offsets of their records are committed."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator
from typing import Protocol

from worker.tracing.records import RecordTrace
from worker.units.assigned_partition import Assignment
from worker.units.chunk import Chunk

__all__ = ["Waiting"]

_MOST = 10_000
"""So many records and batches wait at once; of a table that stands still they would be without end."""


class _Batch(Protocol):
    def committed(self, now: int) -> None: ...
    def left(self, now: int) -> None: ...


class Waiting:
    """Bounded. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards all below
        self._records: dict[Assignment, dict[int, RecordTrace]] = {}
        self._batches: dict[Assignment, list[tuple[int, _Batch]]] = {}
        self._count = 0

    @property
    def full(self) -> bool:
        return self._count >= _MOST

    def add(self, assignment: Assignment, offset: int, record: RecordTrace) -> RecordTrace:
        """Returns the one that waits: another piece of the same record may have brought its own before."""
        with self._lock:
            waits = self._records.setdefault(assignment, {}).setdefault(offset, record)
            self._count += waits is record
            return waits

    def add_batch(self, assignment: Assignment, last: int, batch: _Batch) -> None:
        """It waits until everything up to its last offset there is committed."""
        with self._lock:
            self._batches.setdefault(assignment, []).append((last, batch))
            self._count += 1

    def of(self, chunk: Chunk) -> list[RecordTrace]:
        """Those of the chunk's records that are known already: by another shard, or before they were queued
        again."""
        known = self._records.get(chunk.assignment)
        if not known or not chunk.messages:
            return []
        first, last = chunk.messages[0].offset(), chunk.messages[-1].offset()
        with self._lock:
            inside = sorted(offset for offset in known if first <= offset <= last)
            found = []
            for offset in inside:
                at = bisect_left(chunk.messages, offset, key=lambda message: message.offset())
                if chunk.messages[at].offset() == offset:
                    found.append(known[offset])
            return found

    def assignments(self) -> list[Assignment]:
        with self._lock:
            return list({**self._records, **self._batches})

    def take(self, assignment: Assignment, end: int | None) -> Iterator[RecordTrace | _Batch]:
        """Those below `end`, which wait no more; None: all of them."""
        with self._lock:
            records = self._records.get(assignment, {})
            batches = self._batches.get(assignment, [])
            done = [offset for offset in records if end is None or offset < end]
            found: list[RecordTrace | _Batch] = [records.pop(offset) for offset in done]
            found += [batch for last, batch in batches if end is None or last < end]
            batches[:] = [] if end is None else [each for each in batches if each[0] >= end]
            if not records:
                self._records.pop(assignment, None)
            if not batches:
                self._batches.pop(assignment, None)
            self._count -= len(found)
        return iter(found)
