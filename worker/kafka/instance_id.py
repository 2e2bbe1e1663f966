"""A static member's name in a group of the consumer protocol: the brokers refuse a second owner of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from worker.kafka.errors import KafkaErrors

__all__ = ["InstanceId", "waits"]

_ANSWER_SECONDS = 5.0
_AGAIN_SECONDS = 1.0
_MOST_SECONDS = 75.0
"""The longest session that brokers give by default, 60 s, and a little more."""


class InstanceId:
    """With `group.protocol: consumer` a member that was killed keeps its `group.instance.id` until its
    session ends. Who joins before gets UNRELEASED_INSTANCE_ID, and librdkafka gives such a consumer up."""

    def __init__(
        self,
        admin: AdminClient,
        group: str,
        name: str,
        *,
        errors: KafkaErrors,
        stopping: threading.Event,
        clock: Callable[[], float],
    ) -> None:
        """`errors`: told what is waited for, once in a while. `name`: the `group.instance.id`."""
        self._admin = admin
        self._group = group
        self._name = name
        self._errors = errors
        self._stopping = stopping
        self._clock = clock

    def wait(self, alive: Callable[[], None]) -> None:
        """Until no member has the name, or it is clear that one keeps it: joining tells that then."""
        end = self._clock() + _MOST_SECONDS
        while not self._stopping.is_set() and self._clock() < end and self._is_taken():
            alive()
            text = f"group.instance.id {self._name} is another member's until its session ends: waiting"
            self._errors.report(KafkaError(KafkaError.UNRELEASED_INSTANCE_ID, text))
            self._stopping.wait(_AGAIN_SECONDS)

    def _is_taken(self) -> bool:
        try:
            asked = self._admin.describe_consumer_groups([self._group], request_timeout=_ANSWER_SECONDS)
            members = asked[self._group].result(_ANSWER_SECONDS + 1).members
        except (KafkaException, TimeoutError):  # there is no such group, or Kafka is away: joining tells
            return False
        return any(each.group_instance_id == self._name for each in members)


def waits(
    settings: Mapping[str, Any],
    admin: AdminClient,
    *,
    errors: KafkaErrors,
    stopping: threading.Event,
    clock: Callable[[], float],
) -> list[Callable[[Callable[[], None]], None]]:
    """What a consumer with these settings has to wait for before it joins: one thing, or none."""
    group, name = settings["group.id"], settings.get("group.instance.id")
    if not name or settings.get("group.protocol") != "consumer":
        return []
    return [InstanceId(admin, group, str(name), errors=errors, stopping=stopping, clock=clock).wait]
