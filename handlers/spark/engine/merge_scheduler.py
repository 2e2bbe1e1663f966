"""Merges waiting segments into the Spark tables in the background, several tables at once.

A merge is due after `max_age`, after `max_rows`, or if a statement waits. The table whose rows waited longest
is first, and light tables run beside heavy ones."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from sortedcontainers import SortedKeyList

from handlers.api import StopWorker, TargetUnavailable
from handlers.failures import pause_after
from handlers.logs import get_logger
from handlers.spark.engine.table.sink import TableSink
from handlers.spark.options import MergeOptions
from handlers.spark.runtime.start import WORK_SECONDS, SparkStarts

_HEAVY = 10.0
"""Seconds. If a table's last merge took longer, it leaves the last slot to due tables that are lighter."""

_AGES = (2.0, 10.0)
"""The least and the most seconds that rows wait if `max_age` is not set."""
_PER_MERGE = 20
"""Seconds that rows wait for each second that a merge took: a table's commits use 5 % of a thread. They take
hundredths of a second, and Spark one or two seconds. The shorter of the last two counts, because the first
one, and one beside many others, take longer."""
_REPLACED = 512 * 2**10
"""Bytes of files that a table's merges replace in a second. The former files stay for days."""
_SPARK_STARTS = 0.5
"""Seconds until a table is tried again while Spark starts."""

_CLOCK_WAS_SET = 0.5
"""Seconds by which the wall clock and the monotonic clock may differ before all tables are reordered."""


@dataclass(eq=False, slots=True)
class _Entry:
    """A table that waits and is not being merged. Times are monotonic."""

    table: TableSink
    is_heavy: bool
    not_before: float | None
    since: float | None = None
    """When its oldest row was put (`Waiting.since`), as of the last calculation of `due`."""
    max_age: float = 0.0
    latest: float = 0.0
    """When it is due by this process's clock. `since` is from a clock that may be set, or is another
    machine's."""
    due: float = 0.0


class MergeQueue:
    """Tables with waiting rows. `offer`, `first`, `take` and `done` cost O(log n) of n tables, except after
    the clock was set. One thread at a time."""

    def __init__(self, options: MergeOptions, *, threads: int) -> None:
        self._options = options
        self._heavy_at_once = max(1, threads - 1)
        self._entries: dict[TableSink, _Entry] = {}
        self._light: SortedKeyList[_Entry, float] = SortedKeyList(key=_due)
        self._heavy: SortedKeyList[_Entry, float] = SortedKeyList(key=_due)
        self._running: dict[TableSink, _Entry] = {}
        self._took: WeakKeyDictionary[TableSink, tuple[float, float]] = WeakKeyDictionary()
        self._clock = _clock()

    def offer(self, table: TableSink) -> bool:
        """Add a table with waiting rows. Returns whether threads that wait must look again."""
        if table in self._running:
            return False  # it is checked when that merge ends
        entry = self._entries.get(table)
        if entry is None:
            return self._add(self._entry(table))
        return self._reckon(entry)

    def first(self) -> tuple[TableSink | None, float]:
        """Return the next table, and the seconds until it is due: 0 or less if now."""
        self._look_at_clock()
        now = time.monotonic()
        while (entry := self._first(now)) is not None:
            before = entry.due
            self._reckon(entry)
            if entry.table in self._entries and entry.due <= before:
                return entry.table, entry.due - now
            # Somebody else has merged its rows. Its turn is later, if more rows wait.
        return None, 0.0

    def first_at_once(self) -> tuple[TableSink | None, float]:
        """The same as `first`, if all tables are due except those that have just failed."""
        now = time.monotonic()
        soonest: tuple[TableSink, float] | None = None
        for entry in sorted(self._entries.values(), key=_due):
            if entry.table.waiting.since is None:
                self._remove(entry)
            elif entry.not_before is None or entry.not_before <= now:
                return entry.table, 0.0
            elif soonest is None or entry.not_before - now < soonest[1]:
                soonest = entry.table, entry.not_before - now
        return soonest or (None, 0.0)

    def take(self, table: TableSink) -> None:
        """Mark a table as being merged. `done` ends this."""
        entry = self._entries[table]
        self._remove(entry)
        self._running[table] = entry

    def done(self, table: TableSink, *, seconds: float | None, not_before: float | None = None) -> None:
        """End a table's merge, which took `seconds`, None if it did not begin. The next begins at
        `not_before` (monotonic)."""
        del self._running[table]
        if seconds is not None:
            self._took[table] = self._took.get(table, (0.0, 0.0))[1], seconds
        self._add(self._entry(table, not_before))

    def _entry(self, table: TableSink, not_before: float | None = None) -> _Entry:
        took, max_age = self._took.get(table, (0.0, 0.0)), self._options.max_age
        if max_age is None:
            max_age = min(max(min(took) * _PER_MERGE, table.replaced / _REPLACED, _AGES[0]), _AGES[1])
        return _Entry(table, took[1] > _HEAVY, not_before, max_age=max_age)

    def _add(self, entry: _Entry) -> bool:
        """Add a table. Returns whether it is the next one."""
        now = time.monotonic()
        waiting = entry.table.waiting
        if waiting.since is None:
            return False
        if entry.since is None or waiting.since > entry.since:
            entry.latest = now + entry.max_age
        entry.since = waiting.since
        since = waiting.since - self._clock
        if waiting.is_urgent or waiting.rows >= self._options.max_rows:
            due = min(since, entry.latest - entry.max_age)
        else:
            due = min(since + entry.max_age, entry.latest)
        # Rows may have waited longer than this machine runs. Then they are due before 0 of its clock.
        entry.due = due if entry.not_before is None else max(due, entry.not_before)
        before = self._first(now)
        self._entries[entry.table] = entry
        (self._heavy if entry.is_heavy else self._light).add(entry)
        return before is None or entry.due < before.due

    def _remove(self, entry: _Entry) -> None:
        del self._entries[entry.table]
        (self._heavy if entry.is_heavy else self._light).remove(entry)

    def _reckon(self, entry: _Entry) -> bool:
        """Calculate again when it is due. Returns whether it is the next one."""
        self._remove(entry)
        return self._add(entry)

    def _first(self, now: float) -> _Entry | None:
        light: _Entry | None = next(iter(self._light), None)
        heavy: _Entry | None = next(iter(self._heavy), None)
        if light is None or heavy is None:
            return light or heavy
        running = sum(entry.is_heavy for entry in self._running.values())
        if running >= self._heavy_at_once and light.due <= now:
            return light
        return min(light, heavy, key=_due)

    def _look_at_clock(self) -> None:
        clock = _clock()
        if abs(clock - self._clock) < _CLOCK_WAS_SET:
            return
        self._clock = clock
        for entry in list(self._entries.values()):
            self._reckon(entry)


def _due(entry: _Entry) -> float:
    return entry.due


def _clock() -> float:
    """The wall clock minus the monotonic clock."""
    return time.time() - time.monotonic()


_LONGEST_RETRY = 60.0
_LONGEST_AWAY = 10.0
_FIRST_RETRY = 1.0
_LONGEST_WAIT = 5.0
"""Seconds until due times are checked again, because they depend on a clock that may be set."""

_log = get_logger("spark")


class Merger:
    """Threads that merge due tables (see `MergeQueue`). A batch that cannot wait merges its table itself: see
    LogEnd.put.

    Any thread may offer a table. A table whose merge fails is retried later, with growing delays. The others
    continue."""

    def __init__(self, options: MergeOptions, *, threads: int) -> None:
        self._options = options
        self._changed = threading.Condition()  # guards all below
        self._queue = MergeQueue(options, threads=threads)
        self._ends_at: float | None = None  # monotonic
        self._threads = [
            threading.Thread(target=self._run, name=f"spark-merge-{number}", daemon=True)
            for number in range(threads)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def offer(self, table: TableSink) -> None:
        """Add a table with waiting rows."""
        with self._changed:
            if self._queue.offer(table):
                self._changed.notify()

    def close(self, spent: float = 0.0) -> bool:
        """Continue merging for at most `at_close`, minus the seconds already `spent` on closing. Then wait
        for running merges. Returns False if one still runs after WORK_SECONDS more."""
        with self._changed:
            if self._ends_at is None:
                self._ends_at = time.monotonic() + max(0.0, self._options.at_close - spent)
            end = self._ends_at + WORK_SECONDS
            self._changed.notify_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while (table := self._next()) is not None:
            self._merge(table)

    def _next(self) -> TableSink | None:
        """Wait for a due table. Returns None when the thread must end."""
        with self._changed:
            while True:
                table, wait = self._queue.first() if self._ends_at is None else self._queue.first_at_once()
                left = None if self._ends_at is None else self._ends_at - time.monotonic()
                if left is not None and (table is None or left <= 0):
                    return None
                if table is not None and wait <= 0:
                    self._queue.take(table)
                    self._changed.notify()  # another thread waits for this table: let it wait for another
                    return table
                limits = [each for each in (left, None if table is None else wait) if each is not None]
                self._changed.wait(min([_LONGEST_WAIT, *limits]) if limits else None)

    def _merge(self, table: TableSink) -> None:
        began = time.monotonic()
        not_before: float | None = None
        has_begun = True
        try:
            table.merge()
        except StopWorker:
            # Spark is gone permanently. Its watch stops the worker, which need not wait for this.
            with self._changed:
                self._ends_at = time.monotonic()
        except SparkStarts:
            not_before, has_begun = time.monotonic() + _SPARK_STARTS, False
        except Exception as error:
            # A server that is back must be found soon, and asking costs little.
            longest = _LONGEST_AWAY if isinstance(error, TargetUnavailable) else _LONGEST_RETRY
            wait = pause_after(table.faults, first=_FIRST_RETRY, longest=longest)
            not_before = time.monotonic() + wait * random.uniform(0.8, 1.2)
            _log.warning(
                "spark_merge_failed",
                table=table.name,
                error=table.fault or str(error),
                attempt=table.faults,
                next_in_seconds=round(wait, 1),
            )
        finally:
            with self._changed:
                took = time.monotonic() - began if has_begun else None
                self._queue.done(table, seconds=took, not_before=not_before)
                self._changed.notify_all()
