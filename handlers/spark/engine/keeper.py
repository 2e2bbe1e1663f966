"""Removes merged segments, keeps files few and large, and keeps views."""

from __future__ import annotations

import heapq
import itertools
import random
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from handlers.hanging_calls import Background
from handlers.logs import get_logger
from handlers.spark.engine.table.sink import TableSink
from handlers.spark.options import UpkeepOptions

_TURN = 5.0
"""Seconds between two checks."""

_WHAT = ("optimize", "vacuum")

_FIRST = 3600.0
"""The longest delay of a table's first upkeep, in seconds. More frequent upkeep shortens it."""
_UNCHANGED = 24 * 3600.0
"""The same for a table into which this worker has merged nothing: each check costs requests to the store."""

_MERGED_BY_THEN = 3600.0
"""Seconds after a put by which its rows are assumed to be merged. Tables with waiting rows are checked."""

_log = get_logger("spark")


class Keeper:
    """One thread, `spark-keeper`, from `start` to `end`.

    A table costs time only if something was merged, or its upkeep is due. Thousands of other tables are not
    visited."""

    def __init__(
        self,
        options: UpkeepOptions,
        serves: Callable[[TableSink], bool],
        show: Callable[[TableSink], bool] = lambda _: True,
    ) -> None:
        """`serves`: whether this handler still serves a table. `show`: see `Views.keep`."""
        self.thread = Background("spark-keeper", self._run)
        self._options = options
        self._serves = serves
        self._show = show
        self._to_show: set[TableSink] = set()
        self._told: deque[TableSink] = deque()  # filled by any thread
        self._tidying: set[TableSink] = set()
        self._due: dict[tuple[TableSink, str], float] = {}  # seconds since 1970
        # When each table is checked next, seconds since 1970, in order.
        self._known: dict[TableSink, float] = {}  # an entry of `_order` with another time is outdated
        self._unchanged: set[TableSink] = set()  # those of them into which this worker merged nothing
        self._order: list[tuple[float, int, TableSink]] = []
        self._count = itertools.count()  # of tables due at the same time, the first planned is first

    def look_after(self, sink: TableSink) -> None:
        """Add a table that is served from now on, or into which something was merged. Any thread."""
        self._told.append(sink)

    def _run(self) -> None:
        while not self.thread.stopped.wait(_TURN):
            self.turn(time.time())

    def turn(self, now: float) -> None:
        """Do all due work. `now`: seconds since 1970."""
        while self._told:
            sink = self._told.popleft()
            self._tidying.add(sink)
            self._to_show.add(sink)
            is_unchanged = sink.merges.unmerged.merged_source_ms is None
            if sink not in self._known or (sink in self._unchanged and not is_unchanged):
                (self._unchanged.add if is_unchanged else self._unchanged.discard)(sink)
                every = self._options.optimize_every, self._options.vacuum_every
                # The times of thousands of tables are not all read at once.
                within = min([_FIRST, *filter(None, every)])
                self._plan(
                    sink, now + random.random() * (max(within, _UNCHANGED) if is_unchanged else within)
                )
        for sink in list(self._tidying):
            self._try(sink, "tidy", partial(sink.merges.tidy, time.monotonic()))
            if not sink.merges.has_to_tidy:
                self._tidying.discard(sink)
        for sink in list(self._to_show):
            self._try(sink, "view", partial(self._show_now, sink))
        while self._order and self._order[0][0] <= now and not self.thread.stopped.is_set():
            due, _, sink = heapq.heappop(self._order)
            if self._known.get(sink) != due:
                continue
            self._unchanged.discard(sink)
            if self._serves(sink):
                self._look_after(sink, now)
                self._plan(sink, min(self._due.get((sink, what), now + _FIRST) for what in _WHAT))
            else:
                self._known.pop(sink, None)
                for what in _WHAT:
                    self._due.pop((sink, what), None)

    def _show_now(self, sink: TableSink) -> None:
        self._to_show.discard(sink)
        if self._serves(sink) and not self._show(sink):
            self._to_show.add(sink)

    def _plan(self, sink: TableSink, due: float) -> None:
        self._known[sink] = due
        heapq.heappush(self._order, (due, next(self._count), sink))

    def _look_after(self, sink: TableSink, now: float) -> None:
        """`now`: seconds since 1970."""
        options = self._options
        if self._is_due(sink, "optimize", options.optimize_every, now):
            self._try(sink, "optimize", lambda: sink.merges.optimize(options.min_files))
        # Files that a commit replaces may be removed `retention` later.
        if self._is_due(sink, "vacuum", options.vacuum_every, now, after=options.retention):
            self._try(sink, "vacuum", lambda: sink.merges.vacuum(options.retention))

    def _is_due(self, sink: TableSink, what: str, every: float, now: float, after: float = 0.0) -> bool:
        """Whether it must be done now. If so, it counts as done, even if it fails: a worker that restarts
        repeatedly must not do only this. `after`: seconds after a commit when work appears."""
        due = self._due.get((sink, what))
        if not every or (due is not None and now < due):
            return False
        if due is not None and _is_idle(sink, since=due - every - after):
            self._due[sink, what] = now + every
            return False
        last = None
        with suppress(Exception):  # an unreadable time counts as unknown, so the interval starts now
            last = sink.upkeep_times.last(what)  # perhaps by another worker
        if last is not None and _is_idle(sink, since=last - after):
            self._due[sink, what] = now + every
            return False
        if last is not None:
            due = min(last, now) + every
        is_due = due is not None and due <= now
        self._due[sink, what] = now + every if is_due or due is None else due
        if is_due or last is None:
            self._try(sink, "remember", lambda: sink.upkeep_times.remember(what, now))
        return is_due

    def _try(self, sink: TableSink, what: str, do: Callable[[], None]) -> None:
        """Upkeep can wait: log an error, and try again at the next time."""
        try:
            do()
        except Exception as error:
            _log.warning("spark_upkeep_failed", table=sink.name, what=what, error=str(error))


def _is_idle(sink: TableSink, *, since: float) -> bool:
    """Whether the table is unchanged since then (seconds since 1970): upkeep would find no work."""
    return not sink.waiting.rows and 0.0 < sink.last_put + _MERGED_BY_THEN < since
