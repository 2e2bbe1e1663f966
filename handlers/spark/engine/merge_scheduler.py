"""Merges waiting segments into the Spark tables in the background: oldest first, several tables at once."""

from __future__ import annotations

import random
import threading
import time

from handlers.api import StopWorker, TargetUnavailable
from handlers.failures import pause_after
from handlers.logs import get_logger
from handlers.spark.close_times import WORK_SECONDS
from handlers.spark.engine.merge_queue import Mergeable, MergeQueue
from handlers.spark.options import MergeOptions

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

    def offer(self, table: Mergeable) -> None:
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

    def _next(self) -> Mergeable | None:
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

    def _merge(self, table: Mergeable) -> None:
        began = time.monotonic()
        not_before: float | None = None
        try:
            table.merge()
        except StopWorker:
            # Spark is gone permanently. Its watch stops the worker, which need not wait for this.
            with self._changed:
                self._ends_at = time.monotonic()
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
                self._queue.done(table, seconds=time.monotonic() - began, not_before=not_before)
                self._changed.notify_all()
