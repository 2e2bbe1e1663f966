"""The brokers as a whole: topics, the group, how quickly they answer, and what is wrong with them."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from ..machine.scheduler import Process, Scheduler
from ..machine.threads import Future
from .group import Coordinator, Place
from .logs import Topics

__all__ = ["Admin", "Cluster", "answers_of", "error_of"]


def error_of(code: int, text: str = "") -> KafkaException:
    return KafkaException(KafkaError(code, text))


class Cluster:
    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.topics = Topics(scheduler.random)
        self.group = Coordinator(scheduler, self.topics)
        self.answer_seconds = 0.004
        """How long an answer takes, at most; fetches too."""
        self.away = False
        """No broker answers."""
        self.cut_off: set[Process] = set()
        """Whom no broker answers."""
        self.commits_lost = 0.0
        """So often a commit arrives and its answer does not; as often it does not arrive at all."""
        self.commits_late = 0.0
        """So often a commit's answer takes seconds."""

    def answers(self, process: Process) -> bool:
        """Whether brokers answer it, but perhaps its group's coordinator."""
        return not self.away and process not in self.cut_off

    def ask(self, timeout: float | None, so: Callable[[], bool]) -> None:
        """Let the asking task wait for an answer; `so`: whether who has to give it is in reach. Raises
        KafkaException when there is none."""
        scheduler = self.scheduler
        if not so():
            end = scheduler.now + (60.0 if timeout is None or timeout < 0 else timeout)
            while not so() and scheduler.now < end:
                scheduler.park(min(0.1, end - scheduler.now))
            if not so():
                raise error_of(KafkaError._TIMED_OUT, "Local: Timed out")
        scheduler.park(scheduler.random.random() * self.answer_seconds)

    def metadata(self) -> Any:
        """As `list_topics` gives it."""
        return types.SimpleNamespace(
            topics={
                name: types.SimpleNamespace(partitions=dict.fromkeys(range(len(topic.logs))))
                for name, topic in self.topics.by_name.items()
            }
        )


class Admin:
    """The part of AdminClient that tells topics' ids."""

    def __init__(self, cluster: Cluster, process: Any) -> None:
        self._cluster = cluster
        self._process = process

    def poll(self, timeout: float = 0) -> int:
        return 0

    def describe_topics(self, topics: Any, request_timeout: float = 10.0) -> dict[str, Future]:
        return {name: self._describe(name, request_timeout) for name in _names(topics)}

    def _describe(self, name: str, timeout: float) -> Future:
        future, cluster = Future(), self._cluster
        scheduler = cluster.scheduler

        def answer() -> None:
            topic = cluster.topics.by_name.get(name)
            if not cluster.answers(self._process):
                future.end(error=error_of(KafkaError._TIMED_OUT, "Local: Timed out"))
            elif topic is None:
                future.end(error=error_of(KafkaError.UNKNOWN_TOPIC_OR_PART))
            else:
                future.end(types.SimpleNamespace(topic_id=topic.id))

        seconds = scheduler.random.random() * cluster.answer_seconds
        seconds = seconds if cluster.answers(self._process) else timeout
        scheduler.later(self._process, seconds, answer)
        return future


def _names(topics: Any) -> Iterable[str]:
    return list(topics.topic_names)


def answers_of(offsets: list[TopicPartition], refused: dict[Place, int]) -> list[Any]:
    """One for each partition of a commit, with its error."""
    return [
        types.SimpleNamespace(
            topic=each.topic,
            partition=each.partition,
            offset=each.offset,
            metadata=each.metadata,
            error=KafkaError(code) if (code := refused.get((each.topic, each.partition))) else None,
        )
        for each in offsets
    ]
