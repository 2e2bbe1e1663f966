"""A static member of the consumer protocol waits for its name while another member has it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from building import Clock, configuration
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from worker.kafka import group as kafka_group
from worker.kafka.errors import GroupStrategies, KafkaErrors
from worker.kafka.group import InstanceId
from worker.local.broker import Broker

WAITS = "group.instance.id pod-0 belongs to another member until its session ends: waiting"


class Group:
    """A group of the consumer protocol, and a worker that is to join it as pod-0."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.topic = topic
        self.settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": topic,
            "group.protocol": "consumer",
            "group.instance.id": "pod-0",
            "enable.auto.commit": "false",
            "log_level": 2,
        }
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        self.consumers: list[Consumer] = []

    def joined(self, name: str = "pod-0") -> Consumer:
        """A member that has a partition."""
        consumer = Consumer({**self.settings, "group.instance.id": name})
        self.consumers.append(consumer)
        consumer.subscribe([self.topic])
        end = time.monotonic() + 90
        while not consumer.assignment() and time.monotonic() < end:
            consumer.poll(0.1)
        assert consumer.assignment()
        return consumer

    def waited(self, alive: Callable[[], None] = lambda: None) -> str | None:
        """What is in the way at the end."""
        return waited(self.settings, self.topic, self.admin, alive, time.monotonic)


def waited(
    settings: dict[str, Any],
    topic: str,
    admin: AdminClient,
    alive: Callable[[], None],
    clock: Callable[[], float],
) -> str | None:
    errors = KafkaErrors(clock, lambda code: None, GroupStrategies(configuration()))
    InstanceId(settings, [topic], admin, errors=errors, stopping=threading.Event(), clock=clock).wait(alive)
    return errors.trouble(set())


@pytest.fixture
def group(broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Group]:
    monkeypatch.setattr(kafka_group, "_AGAIN_SECONDS", 0.1)
    monkeypatch.setattr(kafka_group, "_MOST_SECONDS", 12.0)
    group = Group(broker, topic)
    yield group
    for each in group.consumers:
        each.close()


def test_a_member_that_left_is_not_waited_for(group: Group) -> None:
    """The group lists it, as one that was killed."""
    group.joined().close()
    begun = time.monotonic()
    assert group.waited() is None
    assert time.monotonic() - begun < 12, "a session is 45 s"
    group.joined()


def test_a_member_that_left_without_a_partition_is_not_waited_for(group: Group) -> None:
    """It gets none when it joins, either."""
    group.joined("pod-1")
    idle = Consumer(group.settings)
    idle.subscribe([group.topic])
    while "pod-0" not in names(group):
        idle.poll(0.1)
    idle.close()
    begun = time.monotonic()
    assert group.waited() is None
    assert time.monotonic() - begun < 12


def names(group: Group) -> list[str | None]:
    described = group.admin.describe_consumer_groups([group.topic])[group.topic].result(10)
    return [each.group_instance_id for each in described.members]


def test_it_waits_until_no_member_has_the_name_and_says_so(group: Group) -> None:
    holder = group.joined()
    beats = 0

    def alive() -> None:
        nonlocal beats
        beats += 1
        if beats == 6:
            holder.close()

    assert group.waited(alive) == WAITS
    assert beats >= 6
    group.joined()


def test_who_keeps_the_name_is_not_waited_for_longer_than_a_session(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_group, "_MOST_SECONDS", 1.0)
    group.joined()
    assert group.waited() == WAITS


def test_a_name_that_nobody_has_is_not_waited_for(group: Group) -> None:
    assert group.waited() is None
    group.joined("pod-1")
    assert group.waited() is None


class Admin:
    """Raises these, one at each question, and the last one again and again."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)

    def describe_consumer_groups(self, groups: list[str], **_: Any) -> dict[str, Future[SimpleNamespace]]:
        future: Future[SimpleNamespace] = Future()
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        future.set_exception(KafkaException(KafkaError(code)))
        return {groups[0]: future}


@pytest.mark.parametrize(
    ("codes", "asked"),
    [
        ([KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError._TIMED_OUT, KafkaError.GROUP_ID_NOT_FOUND], 3),
        ([KafkaError.GROUP_AUTHORIZATION_FAILED], 1),
        ([KafkaError._TRANSPORT], 75),
    ],
)
def test_what_is_not_answered_is_asked_again(
    codes: list[int], asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_group, "_AGAIN_SECONDS", 0.0)
    clock = Clock()
    beats: list[None] = []

    def alive() -> None:
        clock.now += 1
        beats.append(None)

    settings = {"group.id": "g", "group.instance.id": "pod-0", "group.protocol": "consumer"}
    assert waited(settings, "cdc", cast(Any, Admin(*codes)), alive, clock) is None
    assert len(beats) == asked


def test_the_classic_protocol_gives_the_name_to_who_comes_last() -> None:
    settings = {"group.id": "g", "group.instance.id": "pod-0"}
    assert waited(settings, "cdc", cast(Any, None), pytest.fail, Clock()) is None, "nobody is asked"
