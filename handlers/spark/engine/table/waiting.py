"""What is durable in a table's log, but not in its Spark table yet.

Also limits a table's merges: how much is merged at once, and no OPTIMIZE or VACUUM beside a statement."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from typing import NamedTuple

from handlers.logs import get_logger
from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.log.segment_file import Segment
from handlers.spark.log.stores.interface import AlreadyThere, Files
from handlers.spark.rows.shape import Shape
from handlers.spark.runtime.start import SparkStarts


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


_log = get_logger("spark")

FOLDER = "_merging"
_LEAST = 4 * 2**20
"""In bytes. Less is not worth a commit, and is not recorded before it begins."""


class DDLLock:
    """Any number of one kind at once. Statements go first. Any thread.

    It is taken after a table's `taking`, and before its `merging` and a slot of Spark. A statement settles
    other tables while it is followed, and so takes their `taking`. One of those tables may wait here with a
    statement of its own, so statements never wait for each other."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards the two below
        self._statements = 0  # including waiting ones
        self._upkeep: list[str] = []

    @contextmanager
    def statement(self, table: str) -> Iterator[None]:
        """Follow a statement of this source table inside the block. Logs once what it waits for."""
        with self._changed:
            self._statements += 1
            if self._upkeep:
                _log.info("spark_ddl_waits", table=table, until="; ".join(self._upkeep))
            self._changed.wait_for(lambda: not self._upkeep)
        try:
            yield
        finally:
            with self._changed:
                self._statements -= 1
                self._changed.notify_all()

    @contextmanager
    def upkeep(self, what: str) -> Iterator[None]:
        """Run `what` inside the block, such as `VACUUM of shop.orders`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._statements)
            self._upkeep.append(what)
        try:
            yield
        finally:
            with self._changed:
                self._upkeep.remove(what)
                self._changed.notify_all()


_lock = threading.Lock()  # guards the dict
_locks: dict[str, DDLLock] = {}


def ddl_lock_of(root: str) -> DDLLock:
    """The lock shared by all handlers of this process that keep tables below this folder or URI."""
    with _lock:
        return _locks.setdefault(root, DDLLock())


class MergeSize:
    """The bytes of segments in one merge. One thread at a time, the one that merges.

    A driver that runs out of memory takes the worker with it, and the next worker would begin the same merge.
    So each large merge is recorded before it begins: its size is the name of an empty file in the log's
    folder `_merging`. A file that still exists names an unfinished merge, and half its size is tried. When
    nothing is left to merge, all files are removed."""

    def __init__(self, files: Files, log_folder: str, most: int, *, table: str) -> None:
        """`most`: limit in bytes while nothing has failed."""
        self._files = files
        self._folder = f"{log_folder}/{FOLDER}"
        self._most = most
        self._table = table
        self._limit: int | None = None  # None: not read yet
        self._begun: set[int] = set()  # those that are recorded

    def limit(self) -> int:
        """The most bytes that may be merged at once. Raises what the store raises."""
        if self._limit is None:
            names = [entry.name for entry in self._files.list(self._folder)]
            self._begun = {int(name) for name in names if name.isdecimal()}
            self._limit = self._most
            if self._begun:
                self._halve(min(self._begun))
        return self._limit

    @contextmanager
    def attempt(self, size: int) -> Iterator[None]:
        """Merge `size` bytes inside the block. Raises what the store raises, and what is raised inside."""
        if size > _LEAST:
            with suppress(AlreadyThere):
                self._files.put(f"{self._folder}/{size:020d}", b"")
            self._begun.add(size)
        try:
            yield
        except (MergeConflict, SparkStarts):
            raise  # another writer was faster, or nobody tried: that says nothing about the size
        except Exception:
            if size > _LEAST:  # a smaller merge says nothing about the size either
                self._halve(size)
            raise

    def done(self) -> None:
        """Forget failed merges, because nothing is left to merge. Raises what the store raises."""
        for size in sorted(self._begun):
            self._files.delete(f"{self._folder}/{size:020d}")
            self._begun.discard(size)
        self._limit = self._most

    def _halve(self, failed: int) -> None:
        before = self._most if self._limit is None else self._limit
        self._limit = min(before, max(_LEAST, failed // 2))
        if self._limit < before:
            _log.warning("spark_merges_made_smaller", table=self._table, failed=failed, limit=self._limit)
