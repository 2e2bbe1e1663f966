"""confluent_kafka's Consumer, as far as the worker calls it, behaving as librdkafka does.

`test_consumer_model.py` runs the same scripts on this and on librdkafka.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Message, TopicPartition

from ..machine.scheduler import Process
from .cluster import Cluster, answers_of, error_of
from .fetch_loop import FetchLoop, Found
from .fetching import Fetched
from .group import Place
from .logs import Log
from .membership import Kind, Membership

__all__ = ["Consumer"]

_STATISTICS_SECONDS = 10.0

Callback = Callable[..., object]


class Consumer(FetchLoop):
    def __init__(
        self, cluster: Cluster, process: Process, settings: dict[str, Any], **callbacks: Any
    ) -> None:
        ends = str(settings.get("enable.partition.eof", "false")) == "true"
        super().__init__(cluster, process, tells_ends=ends)
        self._on_commit: Callback | None = callbacks.get("on_commit")
        self._stats: Callback | None = callbacks.get("stats_cb")
        self._cooperative = "cooperative" in settings.get("partition.assignment.strategy", "range")
        self.member = Membership(
            self._scheduler,
            process,
            cluster.group,
            cooperative=self._cooperative,
            session=float(settings.get("session.timeout.ms", 45_000)) / 1000,
            wakes=self._wake,
        )
        self._callbacks: dict[str, Callback | None] = {}
        self._patterns: list[str] = []
        self._assigned_by_callback = False
        self._answers: deque[Callable[[], None]] = deque()
        self._arrival = 0.0  # of the last commit
        self._stats_due = self._scheduler.now + _STATISTICS_SECONDS

    # -- the group

    def subscribe(
        self, topics: list[str], on_assign: Any = None, on_revoke: Any = None, on_lost: Any = None
    ) -> None:
        self._callbacks = {"assign": on_assign, "revoke": on_revoke, "lost": on_lost or on_revoke}
        self._patterns = list(topics)
        self.member.subscribe(self._subscribed())

    def unsubscribe(self) -> None:
        self.member.unsubscribe()

    def memberid(self) -> str:
        return self.member.name

    def close(self) -> None:
        """Gives everything back and leaves; one that has nothing leaves without a word (cooperative)."""
        if self._closed:
            return
        owned = self.member.owned
        if self.member.name and (owned or not self._cooperative):
            self.member.unsubscribe()
            while self.member.name:
                self._serve()
                self._scheduler.park(0.001)
        elif self.member.name:
            self.member.vanished()
        self._closed = True
        self._fetched.clear()
        self._cluster.topics.grew.remove(self._wake)

    def _subscribed(self) -> set[str]:
        names = self._cluster.topics.by_name
        return {n for n in names for p in self._patterns if (re.match(p, n) if p.startswith("^") else p == n)}

    # -- assignment

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._assigned_by_callback = True
        former, self._fetched = self._fetched, {}
        self._add(partitions)
        for place, each in former.items():
            if place in self._fetched:  # as librdkafka mostly does, until something comes
                self._fetched[place].position = each.position

    def unassign(self) -> None:
        self._assigned_by_callback = True
        self._fetched = {}

    def incremental_assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._assigned_by_callback = True
        partitions = list(partitions)
        if any((p.topic, p.partition) in self._fetched for p in partitions):
            raise error_of(KafkaError._CONFLICT, "partition is already assigned")
        self._add(partitions)

    def incremental_unassign(self, partitions: Iterable[TopicPartition]) -> None:
        self._assigned_by_callback = True
        places = [(p.topic, p.partition) for p in partitions]
        if any(place not in self._fetched for place in places):
            raise error_of(KafkaError._INVALID_ARG, "partition is not assigned")
        for place in places:
            self._fetched.pop(place).version += 1

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition(*place) for place in self._fetched]

    def _add(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            place = each.topic, each.partition
            self._fetched[place] = Fetched(place, each.offset)
        self._fetch()

    # -- offsets

    def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> list[TopicPartition]:
        self._cluster.ask(timeout, self._has_coordinator)
        found = []
        for each in partitions:
            known = self._cluster.group.committed.get((each.topic, each.partition))
            if known is None:
                known = OFFSET_INVALID, ""
            more = (known[1],) if known[1] else ()  # confluent_kafka takes no None
            found.append(TopicPartition(each.topic, each.partition, known[0], *more))
        return found

    def _has_brokers(self) -> bool:
        return self._cluster.answers(self._process)

    def _has_coordinator(self) -> bool:
        return self._has_brokers() and self.member.is_heard

    def commit(self, offsets: list[TopicPartition], asynchronous: bool = True) -> list[TopicPartition] | None:
        cluster, random = self._cluster, self._scheduler.random
        name, generation = self.member.name, self.member.generation
        wanted = {(p.topic, p.partition): (p.offset, p.metadata or "") for p in offsets}
        kind = random.random()
        # To a coordinator out of reach it is sent when TCP gets through, or given up before.
        arrives = self._has_coordinator() and kind >= cluster.commits_lost / 2
        told = arrives and kind >= cluster.commits_lost
        seconds = random.random() * cluster.answer_seconds
        if told and kind < cluster.commits_lost + cluster.commits_late:
            seconds = random.random() * 8
        # One connection: commits arrive in the order in which they are sent.
        arrival = self._arrival = max(self._arrival, self._scheduler.now + seconds / 2)
        rest = seconds / 2 if told else 12.0

        def send() -> dict[Place, int]:
            return cluster.group.commit(name, generation, wanted) if arrives else {}

        def fault(refused: dict[Place, int]) -> KafkaError | None:
            """The error of all of them, if there is one."""
            if not told:
                return KafkaError(KafkaError._TIMED_OUT, "Local: Timed out")
            if KafkaError.UNKNOWN_MEMBER_ID in refused.values():
                self.member.refused()
            return KafkaError(next(iter(refused.values()))) if refused.keys() == wanted.keys() else None

        if not asynchronous:
            self._scheduler.park(arrival - self._scheduler.now)
            refused = send()
            self._scheduler.park(rest)
            if (error := fault(refused)) is not None:
                raise KafkaException(error)
            return answers_of(offsets, refused)
        later = self._scheduler.later

        def arrived() -> None:
            refused = send()
            answers = answers_of(offsets, refused)
            later(self._process, rest, lambda: self._answer_when_heard(fault(refused), answers, told))

        # What is on its way arrives, whatever becomes of the process.
        self._scheduler.at(arrival, arrived)
        return None

    def _answer_when_heard(self, error: KafkaError | None, offsets: list[TopicPartition], told: bool) -> None:
        """What the coordinator said comes when it can; what librdkafka says by itself does not wait."""
        if told:
            self.member.when_heard(lambda: self._answer(error, offsets))
        else:
            self._answer(error, offsets)

    def _answer(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        if self._on_commit is not None:
            self._answers.append(lambda: self._on_commit(error, offsets))
            self._wake()

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> Any:
        place = partition.topic, partition.partition
        if cached:
            fetched = self._fetched.get(place)
            log = self._cluster.topics.log(*place)
            if fetched is None or fetched.watermark < 0 or log is None:
                return -1001, -1001
            return log.low, fetched.watermark
        log = self._asked(place, timeout)
        return log.low, log.high

    def offsets_for_times(
        self, partitions: Iterable[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        found = []
        for each in partitions:
            log = self._asked((each.topic, each.partition), timeout)
            found.append(TopicPartition(each.topic, each.partition, log.high))
        return found

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        self._cluster.ask(timeout, self._has_brokers)
        return self._cluster.metadata()

    def _asked(self, place: Place, timeout: float) -> Log:
        self._cluster.ask(timeout, self._has_brokers)
        log = self._cluster.topics.log(*place)
        if log is None:
            raise error_of(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return log

    # -- records

    def poll(self, timeout: float = -1) -> Message | None:
        found = self.consume(1, timeout)
        return found[0] if found else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Callbacks come inside; records of what they take away are dropped."""
        scheduler = self._scheduler
        scheduler.preempt()
        end = scheduler.now + (1e9 if timeout < 0 else timeout)
        found: list[Found] = []
        self._poller = scheduler.task
        while True:
            self._serve()
            live = self._fetched.values()
            found = [each for each in found if each[0] in live and each[0].version == each[1]]
            # Of what was assigned anew since, nothing is told; and records do not keep an error back.
            self._errors = deque(each for each in self._errors if self._fetched.get(each[0].place) is each[0])
            self._collect(found, num_messages - len(self._errors))
            if len(found) >= num_messages or self._errors or scheduler.now >= end:
                break
            scheduler.park(end - scheduler.now)
        self._poller = None
        errors = [self._errors.popleft()[1] for _ in range(min(len(self._errors), num_messages - len(found)))]
        for fetched, _, message in found:
            fetched.hand_over(message.offset(), is_end=message.error() is not None)
        return [message for _, _, message in found] + errors

    def _serve(self) -> None:
        """Run the callbacks that are due."""
        poller, self._poller = self._poller, None  # what wakes it meanwhile is of the callbacks
        while self._answers or self.member.told:
            if self._answers:
                self._answers.popleft()()
                continue
            kind, places = self.member.told.popleft()
            if kind != "left":
                self._call(kind, sorted(places))
            self.member.done(kind, places)
        if self._stats is not None and self._scheduler.now >= self._stats_due:
            self._stats_due = self._scheduler.now + _STATISTICS_SECONDS
            self._stats(self._statistics())
        self._poller = poller

    def _call(self, kind: Kind, places: list[Place]) -> None:
        callback = self._callbacks.get(kind)
        if kind != "assign" and not places:
            return
        partitions = [TopicPartition(*place) for place in places]
        self._assigned_by_callback = False
        if callback is not None:
            callback(self, partitions)
        if kind == "assign":
            if not self._assigned_by_callback:
                (self.incremental_assign if self._cooperative else self.assign)(partitions)
        elif not self._cooperative:
            self.unassign()
        else:
            held = [p for p in partitions if (p.topic, p.partition) in self._fetched]
            self.incremental_unassign(held)
