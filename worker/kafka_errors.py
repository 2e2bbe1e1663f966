"""Kafka's errors, told to people: once in a while, with what to do about them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from confluent_kafka import KafkaError

from worker.logs import get_logger

__all__ = ["KafkaErrors", "client_logger"]

log = get_logger("kafka")

_AGAIN_SECONDS = 10.0

_HINTS = {
    KafkaError._ALL_BROKERS_DOWN: "no broker can be reached; trying again. See kafka.bootstrap_servers",
    KafkaError._TRANSPORT: "the broker cannot be reached; trying again. See kafka.bootstrap_servers",
    KafkaError._RESOLVE: "the broker's name is not known; trying again. See kafka.bootstrap_servers",
    KafkaError._AUTHENTICATION: "the broker refuses the credentials; see sasl.* in kafka.properties",
    KafkaError._SSL: "TLS failed; see ssl.* and security.protocol in kafka.properties",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "the topic does not exist; waiting for it. See kafka.topics",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the user may not read the topic; it needs the ACL Read on it",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "the user may not join the group; it needs the ACL Read on it",
    KafkaError.SASL_AUTHENTICATION_FAILED: "the broker refuses the credentials; see sasl.* in properties",
    KafkaError._MAX_POLL_EXCEEDED: "the group went on without this worker; it joins again",
}


class _Told(logging.Filter):
    """Drops librdkafka's line for every failed attempt to connect: KafkaErrors tells the same, less often."""

    def filter(self, record: logging.LogRecord) -> bool:
        # The client logs "%s [%s] %s" with the kind of line as the first argument.
        return not record.getMessage().startswith("FAIL")


def client_logger() -> logging.Logger:
    """Where librdkafka logs to."""
    logger = logging.getLogger("librdkafka")
    if not any(isinstance(known, _Told) for known in logger.filters):
        logger.addFilter(_Told())
    return logger


class KafkaErrors:
    """Logs errors, the same one again after ten seconds at the earliest, and remembers what holds the
    worker up."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Guards `_last` and `_trouble`: librdkafka's callbacks and the fetcher report, others look.
        self._lock = threading.Lock()
        self._last: dict[tuple[int, str | None], float] = {}
        self._trouble: dict[str | None, str] = {}

    def report(self, error: KafkaError, topic: str | None = None) -> None:
        """Log the error unless it was just logged. The consumer's `error_cb`, too."""
        code = error.code()
        hint = _HINTS.get(code, "librdkafka goes on trying" if error.retriable() else None)
        with self._lock:
            now = self._clock()
            key = (code, topic)
            if now - self._last.get(key, -_AGAIN_SECONDS) < _AGAIN_SECONDS:
                return
            self._last[key] = now
            self._trouble[topic] = f"{topic + ': ' if topic else ''}{error.str()}"
        log.error("kafka_error", error=error.str(), code=error.name(), topic=topic, hint=hint)

    def settled(self) -> None:
        """The group has given this worker its partitions: what was reported before is over."""
        with self._lock:
            self._trouble = {topic: text for topic, text in self._trouble.items() if topic is not None}

    def trouble(self, reading: set[str]) -> str | None:
        """What the last errors were that still hold up a topic that is not among those being read."""
        with self._lock:
            texts = [text for topic, text in self._trouble.items() if topic is None or topic not in reading]
        return "; ".join(texts) or None
