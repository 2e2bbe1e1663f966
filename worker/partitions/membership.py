"""How long this worker may take its partitions for its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from handlers.logs import get_logger
from worker.lanes.lanes import Lanes
from worker.partitions.stage import Stage

log = get_logger("membership")

_SESSION_MS, _HEARTBEAT_MS = 45_000, 3_000
"""librdkafka's defaults; the broker's, with `group.protocol=consumer`, are 45 s and 5 s."""
_BROKERS_HEARTBEAT_MS = 5_000


def session_of(settings: Mapping[str, Any]) -> float:
    """Seconds for which a commit that Kafka takes proves the membership, by the consumer's settings: the
    session less one heartbeat, since the last one may be as old when the commit comes."""
    session = float(settings.get("session.timeout.ms", _SESSION_MS))
    usual = _BROKERS_HEARTBEAT_MS if settings.get("group.protocol") == "consumer" else _HEARTBEAT_MS
    heartbeat = float(settings.get("heartbeat.interval.ms", usual))
    return max(session - heartbeat, session / 2) / 1000


_PATIENCE = 1.0
"""Seconds for which nothing is told: after a rebalance the first commit may come too early."""


class Membership(Stage):
    """Kafka gives the partitions of a member to another when it has not heard of it for a session; the member
    itself may learn that last: it was frozen, or could reach the brokers that have its records again before
    its group's coordinator. So no batch begins unless the coordinator took a commit of this worker within the
    last session. Where nothing is to be committed, `Committer` commits a position again (`due`).

    A batch that began in time, and runs for longer than the session, is not ended by it.
    """

    def __init__(self, lanes: Lanes, session: float, clock: Callable[[], float]) -> None:
        """`session`: seconds, see `session_of`. Nothing may begin before the first commit is taken."""
        self._lanes = lanes
        self._session = session
        self._clock = clock
        self._lock = threading.Lock()  # guards what stands below
        self._sent = self._until = clock()
        self._held_since: float | None = None  # batches wait
        self._told = False
        lanes.trust(self._until)

    def confirmed(self, sent: float) -> None:
        """Kafka took a commit that was sent at this time of the clock. Any thread."""
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
        """Whether a commit is wanted, to have it confirmed."""
        return now >= self._until - self._session * 2 / 3

    def wait(self, now: float) -> float:
        """Seconds until one will be wanted; at least so much that trying costs nothing."""
        least = self._session / 10
        if now >= self._until:  # batches wait for it
            least = min(1.0, least)
        return max(self._until - self._session * 2 / 3 - now, least)

    def held_seconds(self, now: float) -> float:
        """For how long batches have waited for a commit to be taken; 0: they need not. Any thread."""
        with self._lock:
            return 0.0 if self._held_since is None else max(0.0, now - self._held_since)

    def between_polls(self, now: float) -> None:
        """Log once that no batch begins, if that is so."""
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
            hint="for so long the group's coordinator has taken no commit of this worker, so its partitions "
            "may be another's: no batch begins until it takes one, or assigns partitions anew",
        )
