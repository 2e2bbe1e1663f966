"""Kafka's errors, told to people: once in a while, with what to do about them. Questions are asked again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException

from handlers.logs import get_logger
from offsets.stores.interface import CheckpointError, StoreAway
from worker.kafka.group_strategies import GroupStrategies
from worker.observing.status import KafkaFault

Answer = TypeVar("Answer")

log = get_logger("kafka")

_AGAIN_SECONDS = 10.0
_ASK_AGAIN_SECONDS = 1.0

ANSWER_SECONDS = 2.0
"""What a question about one partition may take while the others wait."""
NOWHERE = 2**62
"""An offset that no log has: once the partition can be read, the broker says that it is out of range."""

_HINTS = {
    KafkaError._ALL_BROKERS_DOWN: "no broker can be reached; trying again. See kafka.bootstrap_servers",
    KafkaError._TRANSPORT: "the broker cannot be reached; trying again. See kafka.bootstrap_servers",
    KafkaError._RESOLVE: "the broker's name is not known; trying again. See kafka.bootstrap_servers",
    KafkaError._AUTHENTICATION: "the broker refuses the credentials; see sasl.* in kafka.properties",
    KafkaError._SSL: "TLS failed; see ssl.* and security.protocol in kafka.properties",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "there is no such topic yet; see kafka.topics and kafka.ddl_topics",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the user may not read the topic; it needs the ACL Read on it",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "the user may not join the group; it needs the ACL Read on it",
    KafkaError.UNRELEASED_INSTANCE_ID: "it goes on by itself; if that member lives, give each worker its own",
    KafkaError.SASL_AUTHENTICATION_FAILED: "the broker refuses the credentials; see sasl.* in properties",
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: "members of the group differ in partition.assignment.strategy; "
    "see group_strategies_differ, and kafka.properties of each",
    KafkaError._BAD_COMPRESSION: "the batch is damaged, or would unpack to more than "
    "receive.message.max.bytes in kafka.properties; its partition is not read beyond it",
    KafkaError._BAD_MSG: "the batch is damaged; its partition is not read beyond it",
    KafkaError._MAX_POLL_EXCEEDED: "the group went on without this worker; it joins again",
}


class Stopping(Exception):
    """The worker is to stop, so nobody needs the answer any more."""


def until_answered(
    ask: Callable[[], Answer], *, alive: Callable[[], object], stopping: threading.Event
) -> Answer:
    """Kafka's answer, however long it is away: it is asked again, and `alive` called each time.

    Raises Stopping: `stopping` was set before there was an answer."""
    while not stopping.is_set():
        alive()
        try:
            return ask()
        except (KafkaException, CheckpointError) as error:
            log.error(
                "checkpoint_store_away" if isinstance(error, StoreAway) else "kafka_does_not_answer",
                error=str(error),
                hint="trying again",
            )
            stopping.wait(_ASK_AGAIN_SECONDS)
    raise Stopping


def answered(ask: Callable[[], Answer], partition: object) -> Answer | None:
    """Kafka's answer about one partition; None, which is told, if there is none: nobody else waits for it."""
    try:
        return ask()
    except KafkaException as error:
        log.error(
            "offset_not_told",
            partition=str(partition),
            error=str(error),
            hint="the partition is not read until its leader tells its offsets; the others are",
        )
        return None


class _Trouble(NamedTuple):
    text: str
    code: str
    since: float
    """By the clock."""

    @property
    def differs(self) -> bool:
        """The group's members do not go together."""
        return self.code == "INCONSISTENT_GROUP_PROTOCOL"


class KafkaErrors:
    """Logs errors, the same one again after ten seconds at the earliest, and remembers what holds the
    worker up."""

    def __init__(
        self, clock: Callable[[], float], count: Callable[[str], object], strategies: GroupStrategies
    ) -> None:
        """`count`: called with the name of each error."""
        self._clock = clock
        self._count = count
        self._strategies = strategies
        # Guards `_last` and `_trouble`: librdkafka's callbacks and the fetcher report, others look.
        self._lock = threading.Lock()
        self._last: dict[tuple[int, str | None], float] = {}
        self._trouble: dict[str | None, _Trouble] = {}

    def report(self, error: KafkaError, topic: str | None = None) -> None:
        """Log the error unless it was just logged. The consumer's `error_cb`, too."""
        code = error.code()
        self._count(error.name())
        hint = _HINTS.get(code, "librdkafka goes on trying" if error.retriable() else None)
        with self._lock:
            now = self._clock()
            key = (code, topic)
            if now - self._last.get(key, -_AGAIN_SECONDS) < _AGAIN_SECONDS:
                return
            self._last[key] = now
            self._trouble[topic] = trouble = _Trouble(error.str(), error.name(), now)
        log.error("kafka_error", error=error.str(), code=error.name(), topic=topic, hint=hint)
        if trouble.differs:
            self._strategies.ask()

    def settled(self) -> None:
        """The group has given this worker its partitions: what was reported before is over."""
        with self._lock:
            self._trouble = {topic: last for topic, last in self._trouble.items() if topic is not None}

    def trouble(self, reading: set[str]) -> str | None:
        """What the last errors were that still hold up a topic that is not among those being read."""
        texts = [f"{each.topic + ': ' if each.topic else ''}{each.error}" for each in self.faults(reading)]
        return "; ".join(texts) or None

    def faults(self, reading: set[str]) -> list[KafkaFault]:
        """The same, one by one."""
        with self._lock:
            now = self._clock()
            return [
                KafkaFault(
                    topic=topic,
                    code=last.code,
                    error=last.text + self._strategies.text if last.differs else last.text,
                    seconds=round(now - last.since, 3),
                )
                for topic, last in self._trouble.items()
                if topic is None or topic not in reading
            ]
