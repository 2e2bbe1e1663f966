"""Log Kafka's errors at a limited rate, with hints. Repeat requests until they are answered. Find how the
members' assignment strategies differ if the group rejects this worker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from handlers.kafka.librdkafka import client_logger
from handlers.logs import get_logger
from offsets.stores.interface import CheckpointError, StoreAway
from worker.configuration import Configuration
from worker.configuration.kafka_properties import admin_settings, consumer_settings
from worker.observing.status import KafkaFault

log = get_logger("kafka")

_ANSWER_SECONDS = 10.0
_MOST_NAMED = 5
Answer = TypeVar("Answer")
_AGAIN_SECONDS = 10.0
_ASK_AGAIN_SECONDS = 1.0

ANSWER_SECONDS = 2.0
"""The longest time for a request about one partition while the others wait."""
NOWHERE = 2**62
"""An offset that no log reaches. Once the partition can be read, the broker reports it as out of range."""

_HINTS = {
    KafkaError._ALL_BROKERS_DOWN: "no broker can be reached; trying again. See kafka.bootstrap_servers",
    KafkaError._TRANSPORT: "the broker cannot be reached; trying again. See kafka.bootstrap_servers",
    KafkaError._RESOLVE: "the broker's name is not known; trying again. See kafka.bootstrap_servers",
    KafkaError._AUTHENTICATION: "the broker refuses the credentials; see sasl.* in kafka.properties",
    KafkaError._SSL: "TLS failed; see ssl.* and security.protocol in kafka.properties",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "there is no such topic yet; see kafka.topics and kafka.ddl_topics",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the user may not read the topic; it needs the ACL Read on it",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "the user may not join the group; it needs the ACL Read on it",
    KafkaError.UNRELEASED_INSTANCE_ID: "it continues by itself; if that member lives, give each its own",
    KafkaError.SASL_AUTHENTICATION_FAILED: "the broker refuses the credentials; see sasl.* in properties",
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: "members of the group differ in partition.assignment.strategy; "
    "see group_strategies_differ, and kafka.properties of each",
    KafkaError._BAD_COMPRESSION: "the batch is damaged, or would unpack to more than "
    "receive.message.max.bytes in kafka.properties; its partition is not read beyond it",
    KafkaError._BAD_MSG: "the batch is damaged; its partition is not read beyond it",
    KafkaError._MAX_POLL_EXCEEDED: "the group continued without this worker; it joins again",
}


class GroupStrategies:
    """`ask` does not block. Any thread may read `text`."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._group = configuration.kafka.group_id
        self._own = consumer_settings(configuration.kafka).get("partition.assignment.strategy")
        self.text = ""
        """The latest finding, after a colon; empty: none yet."""

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient(admin_settings(self._configuration.kafka), logger=client_logger())

    def ask(self) -> None:
        """Ask the coordinator. The answer is logged and stored in `text`."""
        try:
            asked = self._admin.describe_consumer_groups([self._group], request_timeout=_ANSWER_SECONDS)
        except KafkaException as error:
            log.warning("group_not_described", group=self._group, error=str(error))
            return
        asked[self._group].add_done_callback(self._answered)

    def _answered(self, answer: Future[Any]) -> None:
        try:
            found = answer.result()
        except KafkaException as error:
            log.warning("group_not_described", group=self._group, error=str(error))
            return
        members = [f"{each.client_id} at {each.host.removeprefix('/')}" for each in found.members]
        more = f" and {len(members) - _MOST_NAMED:,} more" if len(members) > _MOST_NAMED else ""
        theirs = found.partition_assignor or str(found.type)
        named = ", ".join(members[:_MOST_NAMED]) + more
        told = f"this worker offers {self._own}, the group uses {theirs}: {named}"
        self.text = f": {told}"
        log.error("group_strategies_differ", group=self._group, found=told)


class Stopping(Exception):
    """The worker must stop, so the answer is no longer needed."""


def until_answered(
    ask: Callable[[], Answer], *, alive: Callable[[], object], stopping: threading.Event
) -> Answer:
    """Repeat a request until Kafka answers it. `alive` is called each time.

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
    """Return Kafka's answer about one partition, or log the error and return None. Nothing else waits."""
    try:
        return ask()
    except KafkaException as error:
        log.error(
            "offset_not_told",
            partition=str(partition),
            error=str(error),
            hint="the partition is not read until its leader reports its offsets; the others are",
        )
        return None


class _Trouble(NamedTuple):
    text: str
    code: str
    since: float
    """By the clock."""

    @property
    def differs(self) -> bool:
        """Whether the group's members have incompatible strategies."""
        return self.code == "INCONSISTENT_GROUP_PROTOCOL"


class KafkaErrors:
    """Logs errors, the same one at most every ten seconds, and remembers those that block the worker."""

    def __init__(
        self, clock: Callable[[], float], count: Callable[[str], object], strategies: GroupStrategies
    ) -> None:
        """`count`: called with the name of each error."""
        self._clock = clock
        self._count = count
        self._strategies = strategies
        # Guards `_last` and `_trouble`: librdkafka's callbacks and the fetcher write, others read.
        self._lock = threading.Lock()
        self._last: dict[tuple[int, str | None], float] = {}
        self._trouble: dict[str | None, _Trouble] = {}

    def report(self, error: KafkaError, topic: str | None = None) -> None:
        """Log the error unless it was logged recently. Also the consumer's `error_cb`."""
        code = error.code()
        self._count(error.name())
        hint = _HINTS.get(code, "librdkafka retries" if error.retriable() else None)
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
        """Forget group errors: the group has assigned partitions to this worker."""
        with self._lock:
            self._trouble = {topic: last for topic, last in self._trouble.items() if topic is not None}

    def trouble(self, reading: set[str]) -> str | None:
        """Return the last errors that still concern the group or a topic not being read."""
        texts = [f"{each.topic + ': ' if each.topic else ''}{each.error}" for each in self.faults(reading)]
        return "; ".join(texts) or None

    def faults(self, reading: set[str]) -> list[KafkaFault]:
        """Return these errors one by one."""
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
