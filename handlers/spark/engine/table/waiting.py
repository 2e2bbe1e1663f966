"""What is durable in a table's log, but not in its Spark table yet."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from handlers.spark.log.segment_file import Segment
from handlers.spark.rows.shape import Shape


class Waiting(NamedTuple):
    """How much waits."""

    segments: int
    rows: int
    bytes: int
    since: float | None
    """When the oldest was put, seconds since 1970. None if nothing waits."""
    is_urgent: bool = False
    """Whether a statement waits. It counts as a row, and must not wait for others."""


class _One(NamedTuple):
    segment: Segment
    shape: Shape


class Unmerged:
    """The segments of one log that its table does not contain yet, in order. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards all below
        self._waiting: list[_One] = []
        # When segments were merged or retired (monotonic), and the last of them.
        self._kept: list[tuple[float, int]] = []
        self._retired: list[tuple[float, int]] = []
        self.merged_source_ms: int | None = None
        """The source time of the newest change that was merged here."""

    @property
    def has_partial(self) -> bool:
        """Whether rows that lack some columns wait."""
        return any(one.segment.partial for one in self._waiting)

    @property
    def has_statements(self) -> bool:
        return any(one.segment.statement is not None for one in self._waiting)

    def add(self, segment: Segment, shape: Shape) -> None:
        with self._lock:
            self._waiting.append(_One(segment, shape))

    def replace(self, found: Iterable[tuple[Segment, Shape]]) -> None:
        """Replace the known segments by those found in the log."""
        with self._lock:
            self._waiting = [_One(segment, shape) for segment, shape in found]

    def clear(self) -> None:
        with self._lock:
            self._waiting = []
            self._kept = []
            self._retired = []

    def waiting(self) -> Waiting:
        with self._lock:
            segments = [one.segment for one in self._waiting if one.segment.rows or one.segment.statement]
        statements = sum(each.statement is not None for each in segments)
        since = segments[0].written_ms / 1000 if segments else None
        rows, size = sum(each.rows for each in segments), sum(each.bytes for each in segments)
        return Waiting(len(segments), rows + statements, size, since, statements > 0)

    def segments(self) -> list[Segment]:
        """All waiting segments, in order, including those without rows."""
        with self._lock:
            return [one.segment for one in self._waiting]

    def groups(self, limit: Callable[[], int]) -> Iterator[tuple[Sequence[Segment], Shape]]:
        """Yield the segments of each commit, in order: one shape, up to `limit` bytes, at least one segment.
        Segments that lack columns are alone. A statement is a group of its own, with the shape of the rows
        after it."""
        with self._lock:
            waiting = list(self._waiting)
        for (shape, partial, _), group in groupby(waiting, _together):
            taken: list[Segment] = []
            size = 0
            for segment in (one.segment for one in group):
                if taken and (partial or size + segment.bytes > limit()):
                    yield taken, shape
                    taken, size = [], 0
                taken.append(segment)
                size += segment.bytes
            yield taken, shape

    def merged(self, number: int) -> bool:
        """Remove all segments up to this one, because the table contains them. Returns whether any waited."""
        with self._lock:
            done = [one.segment for one in self._waiting if one.segment.number <= number]
            self._waiting = self._waiting[len(done) :]
            if done:
                self._kept.append((time.monotonic(), number))
                times = [each.last_source_ms for each in done if each.last_source_ms is not None]
                self.merged_source_ms = max(times, default=self.merged_source_ms)
        return bool(done)

    @property
    def keeps(self) -> bool:
        """Whether merged segments must be retired or removed later."""
        return bool(self._kept or self._retired)

    @property
    def retired(self) -> int:
        """The last segment that `to_retire` returned and `to_remove` did not yet. 0 if none."""
        with self._lock:
            return self._retired[-1][1] if self._retired else 0

    def to_retire(self, now: float, keep: float) -> int | None:
        """Return, once, the last segment that was merged `keep` seconds ago. `now`: monotonic."""
        with self._lock:
            found = _taken(self._kept, now - keep)
            if found is not None:
                self._retired.append((now, found))
        return found

    def to_remove(self, now: float, keep: float) -> int | None:
        """Return, once, the last segment that `to_retire` returned `keep` seconds ago."""
        with self._lock:
            return _taken(self._retired, now - keep)


def _together(one: _One) -> tuple[Shape, bool, int]:
    """Successive segments may share a merge if this is equal for them."""
    return one.shape, one.segment.partial, one.segment.number if one.segment.statement is not None else 0


def _taken(queue: list[tuple[float, int]], until: float) -> int | None:
    """Return the last number with a time up to `until`. Removes it and those before it from the queue."""
    found = [number for moment, number in queue if moment <= until]
    del queue[: len(found)]
    return found[-1] if found else None
