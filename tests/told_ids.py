"""Brokers that tell the id of a topic as a test wants it: another one, late, or never."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

__all__ = ["Brokers"]


class Brokers(AdminClient):
    """Answers at once with `topic_id` for each topic; None: `answer` is to be called."""

    def __init__(self, topic_id: str | None) -> None:
        super().__init__({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
        self.topic_id = topic_id
        self.unanswered: list[Future[Any]] = []

    def describe_topics(self, topics: TopicCollection, **_: Any) -> dict[str, Future[Any]]:
        found: dict[str, Future[Any]] = {}
        for topic in topics.topic_names:
            found[topic] = future = Future()
            if self.topic_id is None:
                self.unanswered.append(future)
            else:
                self.answer(future, self.topic_id)
        return found

    def answer(self, future: Future[Any], topic_id: str) -> None:
        future.set_result(SimpleNamespace(topic_id=topic_id))
