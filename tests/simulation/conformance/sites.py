"""Where a script of consumers runs: on the model of Kafka, or on librdkafka with brokers."""

from __future__ import annotations

import itertools
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from ..brokers.cluster import Cluster
from ..brokers.consumer import Consumer
from ..brokers.logs import Entry
from ..machine.scheduler import Process, Scheduler, use
from .wire import evict

__all__ = [
    "PARTITIONS",
    "ModelSite",
    "RealSite",
    "Script",
    "Site",
    "ends",
    "errors",
    "place",
    "quiet",
    "read",
    "refusal",
]

PARTITIONS = 4
_PATIENCE_SECONDS = 20.0
_QUIET_SECONDS = 0.6
_HEARTBEAT_SECONDS = 10.0

Script = Callable[["Site"], list[Any]]
"""Returns what it has seen: the same wherever it runs."""


class Site(Protocol):
    topic: str

    def now(self) -> float: ...

    def consumer(self, strategy: str, **settings: Any) -> Any: ...

    def write(self, partition: int, count: int) -> None: ...

    def evict(self, consumer: Any) -> None:
        """Its session is over at the coordinator; it has not heard so yet."""


class RealSite:
    """librdkafka, on a topic of its own with four partitions."""

    def __init__(self, servers: str, topic: str) -> None:
        self.topic = topic
        self._servers = servers
        self._group = f"group-{uuid.uuid4().hex[:8]}"
        self._consumers: list[Any] = []
        self._producer = Producer({"bootstrap.servers": servers, "log_level": 2})

    def now(self) -> float:
        return time.monotonic()

    def consumer(self, strategy: str, **settings: Any) -> Any:
        made = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": self._group,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "fetch.queue.backoff.ms": 5,
                "fetch.wait.max.ms": 20,
                "heartbeat.interval.ms": 200,
                "partition.assignment.strategy": strategy,
                "log_level": 2,
            },
            **settings,
        )
        self._consumers.append(made)
        return made

    def write(self, partition: int, count: int) -> None:
        for _ in range(count):
            self._producer.produce(self.topic, b"x", partition=partition)
        assert self._producer.flush(20) == 0

    def evict(self, consumer: Any) -> None:
        evict(self._servers, self._group, consumer.memberid())

    def run(self, script: Script) -> list[Any]:
        try:
            return script(self)
        finally:
            for each in self._consumers:
                each.close()


class ModelSite:
    """The model, under a scheduler of its own."""

    def __init__(self, seed: int) -> None:
        self.topic = "t"
        self._scheduler = Scheduler(seed)
        self._numbers = itertools.count()

    def now(self) -> float:
        return self._scheduler.now

    def consumer(self, strategy: str, **settings: Any) -> Any:
        process = Process(f"c{next(self._numbers)}")
        given = {"partition.assignment.strategy": strategy, "enable.partition.eof": "true"}
        return Consumer(self._cluster, process, given, **settings)

    def write(self, partition: int, count: int) -> None:
        log = self._cluster.topics.log(self.topic, partition)
        for _ in range(count):
            log.append(Entry(b"x"))
        self._cluster.topics.tell()

    def evict(self, consumer: Any) -> None:
        member = consumer.member
        self._cluster.group.leave(member.name)
        self._scheduler.later(member.process, _HEARTBEAT_SECONDS, member.thawed)

    def run(self, script: Script) -> list[Any]:
        use(self._scheduler)
        try:
            self._cluster = Cluster(self._scheduler)
            self._cluster.topics.create(self.topic, PARTITIONS)
            seen: list[list[Any]] = []
            task = self._scheduler.spawn("script", Process("script"), lambda: seen.append(script(self)))
            self._scheduler.run(lambda: task.ended, self._scheduler.now + 600)
            assert not self._scheduler.faults, self._scheduler.faults
            return seen[0]
        finally:
            use(None)


def place(site: Site, partition: int, *offset: int) -> TopicPartition:
    return TopicPartition(site.topic, partition, *offset)


def read(site: Site, consumer: Any, expected: dict[int, int], *, most: int = 500) -> dict[int, int]:
    """{partition: how many records came}: until it is as expected, or patience ends."""
    found: Counter[int] = Counter()
    end = site.now() + _PATIENCE_SECONDS
    while found != expected and site.now() < end:
        found.update(m.partition() for m in consumer.consume(most, 0.05) if not m.error())
    return dict(found)


def ends(site: Site, consumer: Any, count: int) -> list[tuple[int, int]]:
    """(partition, offset) of so many partitions' ends that are told, and of any that follow too soon."""
    found: list[tuple[int, int]] = []
    end = site.now() + _PATIENCE_SECONDS
    while site.now() < end:
        if len(found) >= count:
            end = min(end, site.now() + _QUIET_SECONDS)
        for message in consumer.consume(500, 0.05):
            if message.error() and message.error().code() == KafkaError._PARTITION_EOF:
                found.append((message.partition(), message.offset()))
    return sorted(found)


def quiet(site: Site, consumer: Any) -> list[str]:
    """What comes in a while: records, and errors by their names; the ends of partitions do not count."""
    found = []
    end = site.now() + _QUIET_SECONDS
    while site.now() < end:
        for message in consumer.consume(500, 0.05):
            error = message.error()
            if error is None:
                found.append(f"record {message.offset()}")
            elif error.code() != KafkaError._PARTITION_EOF:
                found.append(error.name())
    return found


def errors(site: Site, consumer: Any) -> list[str]:
    """The first error that comes, and what comes with it."""
    end = site.now() + _PATIENCE_SECONDS
    while site.now() < end:
        if found := quiet(site, consumer):
            return found
    return []


def refusal(do: Callable[[], object]) -> str:
    """The name of the error that it raises."""
    try:
        do()
    except KafkaException as error:
        return str(error.args[0].name())
    return "none"
