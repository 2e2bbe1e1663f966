"""A static member of the consumer protocol waits for its name, which a killed one keeps for a session."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from building import Clock
from confluent_kafka import KafkaError, KafkaException

from worker.kafka import instance_id
from worker.kafka.errors import KafkaErrors
from worker.kafka.instance_id import waits


class Admin:
    """Answers with the members of each call, the last answer again and again."""

    def __init__(self, *answers: list[str] | Exception) -> None:
        self.answers = list(answers)
        self.asked = 0

    def describe_consumer_groups(self, groups: list[str], **_: Any) -> dict[str, Future[Any]]:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        future: Future[Any] = Future()
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(SimpleNamespace(members=[SimpleNamespace(group_instance_id=n) for n in answer]))
        return {groups[0]: future}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(instance_id, "_AGAIN_SECONDS", 0.0)
    return Clock()


def waited(admin: Admin, clock: Clock) -> tuple[int, str | None]:
    """How often it was told to be alive, and what is in the way at the end."""
    beats: list[None] = []
    errors = KafkaErrors(clock)

    def alive() -> None:
        clock.now += 1
        beats.append(None)

    settings = {"group.id": "g", "group.instance.id": "pod-0", "group.protocol": "consumer"}
    stopping = threading.Event()
    (wait,) = waits(settings, cast(Any, admin), errors=errors, stopping=stopping, clock=clock)
    wait(alive)
    return len(beats), errors.trouble(set())


def test_it_waits_until_no_member_has_the_name_and_says_so(clock: Clock) -> None:
    beats, told = waited(Admin(["pod-0", "pod-1"], ["pod-0"], ["pod-1"]), clock)
    assert beats == 2
    assert told == "group.instance.id pod-0 is another member's until its session ends: waiting"


def test_who_keeps_the_name_is_not_waited_for_longer_than_a_session(clock: Clock) -> None:
    assert waited(Admin(["pod-0"]), clock)[0] == 75


def test_a_name_that_nobody_has_is_not_waited_for(clock: Clock) -> None:
    assert waited(Admin(["pod-1"]), clock) == (0, None)
    unknown = KafkaException(KafkaError(KafkaError.GROUP_ID_NOT_FOUND))
    assert waited(Admin(unknown), clock) == (0, None)


def test_the_classic_protocol_gives_the_name_to_who_comes_last() -> None:
    settings = {"group.id": "g", "group.instance.id": "pod-0"}
    clock, admin = Clock(), cast(Any, Admin([]))
    stopping = threading.Event()
    assert waits(settings, admin, errors=KafkaErrors(clock), stopping=stopping, clock=clock) == []
