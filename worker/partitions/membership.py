"""How long this worker may treat its partitions as its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from handlers.logs import get_logger
from worker.lanes.lanes import Lanes
from worker.partitions.stage import Stage

log = get_logger("membership")

_SESSION_MS, _HEARTBEAT_MS = 45_000, 3_000
"""librdkafka's defaults. With `group.protocol=consumer`, the broker's defaults are 45 s and 5 s."""
_BROKERS_HEARTBEAT_MS = 5_000


def session_of(settings: Mapping[str, Any]) -> float:
    """Return for how many seconds an accepted commit proves the membership. This is the session less one
    heartbeat, because the last heartbeat may be that old when the commit arrives."""
    session = float(settings.get("session.timeout.ms", _SESSION_MS))
    usual = _BROKERS_HEARTBEAT_MS if settings.get("group.protocol") == "consumer" else _HEARTBEAT_MS
    heartbeat = float(settings.get("heartbeat.interval.ms", usual))
    return max(session - heartbeat, session / 2) / 1000


_PATIENCE = 1.0
"""Seconds before a warning: after a rebalance, the first commit may come too early."""


class Membership(Stage):
    """Kafka gives a member's partitions to another member after a session without a heartbeat. The member may
    learn that last: it was frozen, or it reached its records' brokers before its group's coordinator. So no
    batch starts unless the coordinator accepted a commit of this worker within the last session. If there is
    nothing to commit, `Committer` commits a position again (`due`).

    A batch that started in time and runs longer than the session is not stopped."""

    def __init__(self, lanes: Lanes, session: float, clock: Callable[[], float]) -> None:
        """`session`: seconds, see `session_of`. Nothing may start before the first commit is accepted."""
        self._lanes = lanes
        self._session = session
        self._clock = clock
        self._lock = threading.Lock()  # guards the attributes below
        self._sent = self._until = clock()
        self._held_since: float | None = None  # batches wait since then
        self._told = False
        lanes.trust(self._until)

    def confirmed(self, sent: float) -> None:
        """Kafka accepted a commit that was sent at `sent` (clock time). Any thread."""
        with self._lock:
            self._sent = max(self._sent, sent)
            self._until = self._sent + self._session
            self._lanes.trust(self._until)
            if self._until <= self._clock():
                return
            told, self._told, self._held_since = self._told, False, None
        if told:
            log.info("membership_confirmed_again")

    def due(self, now: float) -> bool:
        """Whether a commit is needed as a confirmation."""
        return now >= self._until - self._session * 2 / 3

    def wait(self, now: float) -> float:
        """Return the seconds until the next commit is needed, with a minimum that keeps trying cheap."""
        least = self._session / 10
        if now >= self._until:  # batches wait for it
            least = min(1.0, least)
        return max(self._until - self._session * 2 / 3 - now, least)

    def held_seconds(self, now: float) -> float:
        """How long batches have waited for an accepted commit; 0 if none wait. Any thread."""
        with self._lock:
            return 0.0 if self._held_since is None else max(0.0, now - self._held_since)

    def between_polls(self, now: float) -> None:
        """Log once if no batch may start."""
        with self._lock:
            if now < self._until or not self._lanes.seen.queued:
                self._held_since = None
                return
            if self._held_since is None:
                self._held_since = now
            if now < self._until + _PATIENCE or self._told:
                return
            self._told = True
        log.warning(
            "membership_unconfirmed",
            seconds=round(now - self._sent, 1),
            hint="since then, the group's coordinator has accepted no commit of this worker, so others may "
            "own its partitions: no batch starts until it accepts one, or assigns partitions again",
        )
