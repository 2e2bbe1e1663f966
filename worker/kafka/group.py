"""Join and leave the group: wait until a static member's name is free, and give up the own place."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from handlers.kafka.librdkafka import SILENT
from handlers.logs import get_logger
from offsets.stores.kafka import COORDINATOR_BUSY
from worker.kafka.errors import KafkaErrors

log = get_logger("kafka")

_ANSWER_SECONDS = 5.0
_POLL_SECONDS = 0.1
_AGAIN_SECONDS = 1.0
_MOST_SECONDS = 75.0
"""The brokers' default for the longest session, 60 s, plus a margin."""
_NO_ANSWER = COORDINATOR_BUSY | {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}

_POLLS = 50
"""The most polls that wait for the group."""


@dataclass(eq=False)
class InstanceId:
    """Waits until `group.instance.id` is free. `settings`: the worker's consumer. `errors` reports the wait.

    With `group.protocol: consumer`, a killed member keeps the name until its session ends. A consumer that
    joins earlier gets UNRELEASED_INSTANCE_ID, and librdkafka gives that consumer up. A member that left also
    keeps its place, and the group lists both alike. Only another consumer that joins can distinguish them."""

    settings: dict[str, Any]
    topics: list[str]
    admin: AdminClient
    _: KW_ONLY
    errors: KafkaErrors
    stopping: threading.Event
    clock: Callable[[], float]

    def wait(self, alive: Callable[[], object]) -> None:
        """Wait until the name is free, or until it is clear that a member keeps it. Then joining reports
        that. Does nothing without such a name, or in a classic group."""
        if not self.settings.get("group.instance.id") or self.settings.get("group.protocol") != "consumer":
            return
        end = self.clock() + _MOST_SECONDS
        while not self.stopping.is_set() and self.clock() < end and self._may_be_taken(alive):
            self.stopping.wait(_AGAIN_SECONDS)

    def _may_be_taken(self, alive: Callable[[], object]) -> bool:
        """Return whether the name may be taken; also true if Kafka does not answer."""
        name = self.settings["group.instance.id"]
        alive()
        try:
            if name not in self._members().values():
                return False
            if not self._is_refused(alive):
                return False
        except TimeoutError:
            return True
        except KafkaException as error:  # the group does not exist or cannot be described: joining reports it
            return error.args[0].code() in _NO_ANSWER
        text = f"group.instance.id {name} belongs to another member until its session ends: waiting"
        self.errors.report(KafkaError(KafkaError.UNRELEASED_INSTANCE_ID, text))
        return True

    def _is_refused(self, alive: Callable[[], object]) -> bool:
        """Return whether a consumer cannot join. If it can, it leaves, and the next one gets its place.

        Raises KafkaException, TimeoutError: not known yet."""
        consumer = Consumer(self.settings, logger=SILENT)
        try:
            consumer.subscribe(self.topics)
            end = self.clock() + _ANSWER_SECONDS
            while self.clock() < end and not self.stopping.is_set():
                alive()
                message = consumer.poll(_POLL_SECONDS)
                error = None if message is None else message.error()
                if error is not None and (error.fatal() or error.code() == KafkaError._FATAL):
                    return True
                if consumer.memberid() in self._members():
                    return False
            raise TimeoutError
        finally:
            consumer.close()

    def _members(self) -> dict[str, str | None]:
        group = self.settings["group.id"]
        asked = self.admin.describe_consumer_groups([group], request_timeout=_ANSWER_SECONDS)
        members = asked[group].result(_ANSWER_SECONDS + 1).members
        return {each.member_id: each.group_instance_id for each in members}


def close_stays(settings: Mapping[str, str]) -> bool:
    """Whether a consumer with these settings must `leave` before it is closed. With cooperative-sticky,
    librdkafka does not report the close of a consumer without partitions, so its place is kept for
    `session.timeout.ms`. A static member must keep its place."""
    return (
        settings.get("group.protocol", "classic") == "classic"
        and "cooperative" in settings.get("partition.assignment.strategy", "")
        and not settings.get("group.instance.id")
    )


def leave(consumer: Consumer, poll: Callable[[], object]) -> None:
    """Give up all partitions, calling `poll`, and leave the group once any running rebalance is over. Log a
    warning if that fails. Call it on the polling thread."""
    error = None
    try:
        consumer.unsubscribe()
        for _ in range(_POLLS):
            if not consumer.memberid():  # the group's last answer; librdkafka clears it when it leaves
                return
            poll()
    except KafkaException as raised:
        error = str(raised)
    log.warning(
        "group_not_left",
        error=error,
        hint="the group keeps this worker's membership and partitions for session.timeout.ms",
    )
