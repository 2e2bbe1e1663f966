"""With merged topics (`kafka.ddl_topics`), one worker must have all partitions, or nothing is read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import InitVar, dataclass

from confluent_kafka import Consumer, KafkaException

from handlers.logs import get_logger
from handlers.options.matching import topic_matcher
from worker.partitions.stage import Stage
from worker.units.assigned_partition import Assignment, Assignments

log = get_logger("whole_share")

_ANSWER_SECONDS = 5.0
_AGAIN_SECONDS = 5.0
_PATIENCE_SECONDS = 60.0
"""A killed worker counts as a member until its session ends: 45 s by default."""


class SharedTopics(Exception):
    """Another member of the group has some of the partitions."""


@dataclass(eq=False)
class WholeShare(Stage):
    """Whether this worker has every partition of its topics. The fetcher's own; `reason` any thread.

    With only some it reads nothing: a row could overtake DDL that another member has. One that had all waits
    for them. One that never did ends after one or two minutes, so the other gets them. Both wait while a DDL
    topic is missing: without its definitions, rows would have other values.

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
