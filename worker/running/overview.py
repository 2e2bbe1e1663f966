"""What the status page is made of, taken from a running worker."""

from __future__ import annotations

import time
from collections.abc import Callable

from handlers.logs import get_logger
from worker.configuration.shown import shown_settings
from worker.http.watch import Sources
from worker.observing import logs
from worker.observing.overview.history import History
from worker.observing.overview.timeline import Timeline
from worker.partitions.committer import Committer
from worker.running.status_report import StatusReport

log = get_logger("overview")


class Overview:
    """The last hour of a worker and what happened in it, from now until `end`; nothing of a batch's way."""

    def __init__(self, status: StatusReport, committer: Committer, clock: Callable[[], float]) -> None:
        self._status = status
        timeline = Timeline(status.configuration.secrets.redact, clock=time.time)
        self._history = History(
            status.pulse, lambda: committer.counted, timeline, clock=clock, wall_clock=time.time
        )
        self._ends = [logs.listen(each) for each in (timeline.note, status.passing_over.note)]
        self.sources = Sources(
            status.whole,
            self._history,
            timeline,
            settings=lambda: shown_settings(status.configuration),
            config=lambda: str(status.configuration.path),
        )

    def end(self) -> None:
        """Hear of nothing more."""
        for end in self._ends:
            end()

    def look(self) -> None:
        """Measure, when it is time to; to be called now and then. Raises nothing."""
        try:
            self._history.look()
        except Exception:
            log.exception("history_failed")
