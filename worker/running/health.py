"""What makes /healthz and /readyz fail, and the data of the status page."""

from __future__ import annotations

import time
from collections.abc import Callable

from handlers.logs import get_logger
from worker.configuration.shown import shown_settings
from worker.formats.registry import NO_FORMAT
from worker.http.watch import Sources
from worker.observing import logs
from worker.observing.overview.timeline import History, TableHours, Timeline
from worker.partitions.committer import Committer
from worker.running.components import Components
from worker.running.status_report import StatusReport

log = get_logger("overview")


class Overview:
    """The last hour of a worker and its events, from now until `end`. Contains no steps of batches."""

    def __init__(self, status: StatusReport, committer: Committer, clock: Callable[[], float]) -> None:
        timeline = Timeline(status.configuration.secrets.redact, clock=time.time)
        self._history = History(
            status.pulse, lambda: committer.counted, timeline, clock=clock, wall_clock=time.time
        )
        self._status, self._tables = status, TableHours(clock, time.time)
        self._ends = [logs.listen(each) for each in (timeline.note, status.passing_over.note)]
        self.sources = Sources(
            status.whole,
            self._history,
            timeline,
            settings=lambda: shown_settings(status.configuration),
            config=lambda: str(status.configuration.path),
            table_points=self._tables.points,
        )

    def end(self) -> None:
        """Stop listening to logs."""
        for end in self._ends:
            end()

    def look(self) -> None:
        """Measure if it is time. Call this regularly. Raises nothing."""
        try:
            self._history.look()
            self._tables.look(lambda: self._status().tables)
        except Exception:
            log.exception("history_failed")


def unhealthy(components: Components, now: float, patience: float) -> str | None:
    """Return which thread makes no progress, or None. `patience`: seconds that a thread may be silent."""
    history = components.history
    if history is not None and history.reason is not None:
        return history.reason
    for thread in (components.fetcher, components.committer):
        if not thread.is_alive():
            return f"the {thread.name} thread is dead"
        if now - thread.beat > patience:
            return f"the {thread.name} thread has made no progress for {now - thread.beat:.0f} s"
    processors = [each for each in components.processors if not each.dismissed]
    dead = [thread.name for thread in processors if not thread.is_alive()]
    if dead:
        return f"dead threads: {', '.join(dead)}"
    return components.standstill.reason or components.stuck.reason


def unready(components: Components) -> str | None:
    """Return what it waits for before it reads. None: it has its partitions, if the group gave it any."""
    current = components.assignments.current()
    trouble = components.errors.trouble({each.partition.topic for each in current})
    history = components.history
    if history is not None and history.waits is not None:
        return history.waits
    if not components.assignments.balanced:
        return f"no partitions assigned yet{': ' + trouble if trouble else ''}"
    if current and all(each.format is NO_FORMAT for each in current):
        topics = sorted({each.partition.topic for each in current})
        return f"nothing is read: no entry of format: matches {', '.join(topics[:5])}"
    if components.share is not None and components.share.reason is not None:
        return components.share.reason
    return trouble if trouble and not current else None
