"""Kafka's ids of topics. They distinguish a recreated topic from the earlier one with its name."""

from __future__ import annotations

import concurrent.futures
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

_log = structlog.get_logger(__name__)

_NONE = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id that a broker without ids returns (before Kafka 2.8)."""
_BEAT_SECONDS = 0.5
_SILENT_SECONDS = 0.2
_MOST_IDS = 16
_MOST_TOPICS = 10_000


class TopicIds:
    """Asks the brokers. An answer takes a millisecond or two, and nobody must wait for it.

    Kafka never reuses an id: a broker that reports a former id has not heard of the newer one yet."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self._known: dict[str, deque[str]] = {}  # the last ids of each topic, the newest last
        self._silent = False  # the last answer was missing: the next wait is short
        self._pending: dict[str, concurrent.futures.Future[Any]] = {}

    def now(
        self, topics: Iterable[str], seconds: float, alive: Callable[[], object] = lambda: None
    ) -> dict[str, str]:
        """Return the present ids. Topics that the brokers do not report within `seconds` are left out.

        `alive` is called while it waits."""
        wanted = sorted(set(topics))
        self._collect(tuple(self._pending))
        end = time.monotonic() + (min(seconds, _SILENT_SECONDS) if self._silent else seconds)
        futures = self._ask(wanted, seconds)
        found = {}
        for topic in wanted:
            try:
                told = self._answer(futures[topic], end, alive)
                self._silent = False
                self._pending.pop(topic, None)  # asked before: it reports nothing newer
                found[topic] = self._learn(topic, told)
            except (KafkaException, KeyError, concurrent.futures.TimeoutError) as error:
                if isinstance(error, concurrent.futures.TimeoutError):
                    self._pending[topic] = futures[topic]
                self._silent = self._silent or not isinstance(error, KafkaException) or _timed_out(error)
                reason = str(error) or f"no answer within {seconds:g} s"
                _log.warning(
                    "topic_id_unknown",
                    topic=topic,
                    reason=reason,
                    hint="a recreated topic will not be noticed. The user needs the ACL Describe",
                )
        return {topic: each for topic, each in found.items() if each is not None}

    def look(self, topics: Iterable[str], seconds: float) -> None:
        """Ask for the ids, so that `seen` can return them later. Does not wait."""
        self._admin.poll(0)  # for the client's logs, and its tokens that expire
        self._collect(tuple(self._pending))
        for topic, future in self._ask(sorted(set(topics)), seconds).items():
            self._pending[topic] = future

    def seen(self, topic: str) -> str | None:
        """Return the newest id that the brokers have reported to anyone."""
        self._collect((topic,))
        ids = self._known.get(topic)
        return ids[-1] if ids else None

    def former(self, topic: str, topic_id: str) -> None:
        """Add an id that the topic had before its present one, according to a stored checkpoint."""
        ids = self._known.get(topic)
        if ids and topic_id not in ids and len(ids) < _MOST_IDS:
            ids.appendleft(topic_id)

    def _collect(self, topics: Iterable[str]) -> None:
        """Collect answers that nobody waited for."""
        for topic in topics:
            future = self._pending.get(topic)
            if future is not None and future.done():
                del self._pending[topic]
                error = future.exception()
                if error is None:
                    self._learn(topic, _id_of(future.result()))
                if not isinstance(error, KafkaException) or not _timed_out(error):
                    self._silent = False

    def _learn(self, topic: str, told: str | None) -> str | None:
        """Return the topic's id, now that a broker has reported this one."""
        if told is None:
            return None
        ids = self._known.pop(topic, None) or deque(maxlen=_MOST_IDS)
        if told not in ids:
            ids.append(told)
        self._known[topic] = ids  # most recently reported: the others are removed first
        if len(self._known) > _MOST_TOPICS:
            del self._known[next(iter(self._known))]
        return ids[-1]

    def _ask(self, topics: list[str], seconds: float) -> dict[str, concurrent.futures.Future[Any]]:
        if not topics:
            return {}
        try:
            return dict(self._admin.describe_topics(TopicCollection(topics), request_timeout=seconds))
        except KafkaException as error:
            _log.debug("topic_ids_not_asked", reason=str(error))
            return {}

    def _answer(
        self, future: concurrent.futures.Future[Any], end: float, alive: Callable[[], object]
    ) -> str | None:
        while True:
            alive()
            self._admin.poll(0)
            left = end - time.monotonic()
            try:
                return _id_of(future.result(max(0.0, min(left, _BEAT_SECONDS))))
            except concurrent.futures.TimeoutError:
                if left <= 0:
                    raise


def _timed_out(error: KafkaException) -> bool:
    return bool(error.args[0].code() in (KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE))


def _id_of(topic: Any) -> str | None:
    text = str(topic.topic_id)
    return None if text == _NONE else text
