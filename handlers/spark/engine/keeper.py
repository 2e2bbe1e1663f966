"""What a lake needs now and then: old segments are removed, files are kept few and large."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from handlers.logs import get_logger
from handlers.spark.engine.background import Background
from handlers.spark.engine.table.sink import TableSink
from handlers.spark.options import UpkeepOptions

__all__ = ["Keeper"]

_TURN = 5.0
"""Seconds between two looks."""

_MERGED_BY_THEN = 3600.0
"""Seconds: what was put is merged so much later at most, or the table is looked at as long as it is not."""

_log = get_logger("spark")


class Keeper(Background):
    """One thread, `spark-keeper`, from `start` to `end`."""

    def __init__(self, options: UpkeepOptions, sinks: Callable[[], Iterable[TableSink]]) -> None:
        """`sinks`: the tables known so far."""
        super().__init__("spark-keeper")
        self._options = options
        self._sinks = sinks
        self._due: dict[tuple[TableSink, str], float] = {}  # seconds since 1970

    def _run(self) -> None:
        while not self._stopped.wait(_TURN):
            sinks = list(self._sinks())
            known = set(sinks)
            self._due = {each: due for each, due in self._due.items() if each[0] in known}
            for sink in sinks:
                if self._stopped.is_set():
                    return
                self._look_after(sink, time.time())

    def _look_after(self, sink: TableSink, now: float) -> None:
        """`now`: seconds since 1970."""
        self._try(sink, "tidy", lambda: sink.tidy(time.monotonic()))
        options = self._options
        if self._is_due(sink, "optimize", options.optimize_every, now):
            self._try(sink, "optimize", lambda: sink.optimize(options.min_files))
        # What a commit leaves behind may be removed `retention` later.
        if self._is_due(sink, "vacuum", options.vacuum_every, now, after=options.retention):
            self._try(sink, "vacuum", lambda: sink.vacuum(options.retention))

    def _is_due(self, sink: TableSink, what: str, every: float, now: float, after: float = 0.0) -> bool:
        """Whether it is to be done now; then it counts as done, even if it fails: a worker that is started
        again and again must not do nothing else. `after`: so many seconds after a commit it has work."""
        due = self._due.get((sink, what))
        if not every or (due is not None and now < due):
            return False
        if due is not None and _is_idle(sink, since=due - every - after):
            self._due[sink, what] = now + every
            return False
        last = None
        with suppress(Exception):  # a place that cannot be read: it counts from now, as where nobody knows
            last = sink.upkeep_times.last(what)  # it may have been another worker
        if last is not None:
            due = min(last, now) + every
        is_due = due is not None and due <= now
        self._due[sink, what] = now + every if is_due or due is None else due
        if is_due or last is None:
            self._try(sink, "remember", lambda: sink.upkeep_times.remember(what, now))
        return is_due

    def _try(self, sink: TableSink, what: str, do: Callable[[], None]) -> None:
        """Upkeep can wait: what fails is told, and tried again at its next time."""
        try:
            do()
        except Exception as error:
            _log.warning("spark_upkeep_failed", table=sink.name, what=what, error=str(error))


def _is_idle(sink: TableSink, *, since: float) -> bool:
    """Whether its table is as it was (`since`: seconds since 1970): to look at it would be for nothing."""
    return not sink.waiting.rows and 0.0 < sink.last_put + _MERGED_BY_THEN < since
