"""How long this worker may treat its partitions as its own, and whether it has all that it needs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import InitVar, dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException

from handlers.logs import get_logger
from handlers.options.matching import topic_matcher
from worker.lanes.lanes import Lanes
from worker.partitions.stage import Stage
from worker.units.assigned_partition import Assignment, Assignments

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


_ANSWER_SECONDS = 5.0
_AGAIN_SECONDS = 5.0
_PATIENCE_SECONDS = 60.0
"""A killed worker counts as a member until its session ends: 45 s by default."""


class SharedTopics(Exception):
    """Another member of the group has some of the partitions."""


@dataclass(eq=False)
class WholeShare(Stage):
    """With merged topics (`kafka.ddl_topics`), one worker must have all partitions, or nothing is read.

    The fetcher's own; `reason` any thread. With only some it reads nothing: a row could overtake DDL that
    another member has. One that had all waits for them. One that never did ends after one or two minutes, so
    the other gets them. Both wait while a DDL topic is missing: without its definitions, rows would have
    other values.

    `wanted`: whether a topic is among the merged ones. `ddl_topics`: names and patterns. Each must match a
    topic."""

    consumer: Consumer
    assignments: Assignments
    wanted: Callable[[str], bool]
    ddl_topics: InitVar[Sequence[str]]

    def __post_init__(self, ddl_topics: Sequence[str]) -> None:
        self._ddl_topics = [(each, topic_matcher(each)) for each in ddl_topics]
        self._due = 0.0
        self._had_all = False
        self._since: float | None = None
        self.reason: str | None = None
        """Why nothing is read. None: this worker has all partitions, or none at all."""

    def assigned(self, added: Collection[Assignment]) -> None:
        self._due = 0.0

    def revoked(self, gone: Collection[Assignment]) -> None:
        self._due = 0.0

    def may_read(self, now: float) -> bool:
        """Whether this worker's partitions may be read.

        Raises SharedTopics: they may not, and never could in a minute or two since it got some of them."""
        if now >= self._due:
            # Once it has all partitions, only a rebalance can change that.
            self._due = now + _AGAIN_SECONDS
            self._compare(now)
            if self.reason is None:
                self._due = float("inf")
        return self.reason is None

    def _compare(self, now: float) -> None:
        have = {each.partition for each in self.assignments.current()}
        if not have:
            self.reason = self._since = None
            return
        try:
            topics = self.consumer.list_topics(timeout=_ANSWER_SECONDS).topics
        except KafkaException as error:
            self.reason = f"cannot see whether this worker has all partitions: {error}"
            return
        missing = [each for each, matches in self._ddl_topics if not any(map(matches, topics))]
        if missing:
            reason = (
                f"kafka.ddl_topics names {', '.join(missing)}, but this topic does not exist, or this user "
                "may not see it: correct the name, or create the topic; nothing is read until it exists"
            )
            if self.reason != reason:
                log.error("ddl_topics_missing", found=reason)
            self.reason, self._since = reason, None
            return
        every = {(name, number) for name in topics if self.wanted(name) for number in topics[name].partitions}
        elsewhere = sorted(every - have)
        if not elsewhere:
            if self._since is not None:
                log.info("has_all_partitions", partitions=len(every))
            self._had_all, self.reason, self._since = True, None, None
            return
        names = ", ".join(f"{topic}[{number}]" for topic, number in elsewhere[:5])
        names += " ..." if len(elsewhere) > 5 else ""
        self.reason = (
            f"kafka.ddl_topics is set, so one worker must have all {len(every)} partitions; another group "
            f"member has {len(elsewhere)} of them ({names}): run one worker in the group, or give each "
            "worker its own topics and group_id"
        )
        if self._since is None:
            self._since = now
            log.error("topics_shared", found=self.reason, hint="nothing is read until that is fixed")
        # If neither ever had all of them, the one without the first ends, and the other gets them.
        patience = _PATIENCE_SECONDS * (1 if min(every) in elsewhere else 2)
        if not self._had_all and now - self._since >= patience:
            raise SharedTopics(self.reason)
