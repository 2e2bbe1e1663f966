"""By which id of its topic a partition is read, on mock brokers, while other brokers tell what they like."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from building import Clock, configuration
from told_ids import Brokers

from offsets.types import TopicPartition
from worker.assignment import Assignment
from worker.parts import Parts

PLACE = TopicPartition("t", 0)


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    found = Brokers("one")
    monkeypatch.setattr("worker.parts.AdminClient", lambda *_, **__: found)
    return found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make_parts(
    mock_servers: str, tmp_path: Path, clock: Clock, brokers: Brokers
) -> Iterator[Callable[[], Parts]]:
    made: list[Parts] = []

    def make() -> Parts:
        settings = configuration(
            kafka={
                "bootstrap_servers": mock_servers,
                "group_id": f"ids-{tmp_path.name}",
                "topics": ["t"],
                "properties": {"log_level": 2},
            },
            checkpoint={"directory": str(tmp_path), "initial": "earliest"},
        )
        made.append(parts := Parts(settings, clock=clock, fail=pytest.fail, stop=threading.Event()))
        parts.kafka.attach(parts.consumer)
        return parts

    yield make
    for parts in made:
        parts.consumer.close()


def assigned(parts: Parts) -> Assignment:
    parts.rebalancer.on_assign(parts.consumer, [confluent_kafka.TopicPartition(*PLACE)])
    return current(parts)


def current(parts: Parts) -> Assignment:
    found = parts.assignments.get(*PLACE)
    assert found is not None
    return found


def look(parts: Parts, clock: Clock) -> list[tuple[Assignment, str]]:
    clock.now += 5
    parts.refetching.look()
    return parts.refetching.made_anew()


def remembered(parts: Parts) -> set[str | None]:
    """By the local file and by Kafka."""
    in_file = parts.local.load_entries([PLACE])[PLACE].checkpoint
    return {in_file.topic_id, parts.kafka.load_committed([PLACE])[PLACE].checkpoint.topic_id}


def test_a_topic_is_never_read_again_under_an_id_that_it_had_before(
    make_parts: Callable[[], Parts], brokers: Brokers, clock: Clock
) -> None:
    parts = make_parts()
    former = assigned(parts)
    assert look(parts, clock) == []
    brokers.topic_id = "two"
    assert parts.refetching.other_id(former) == "two"
    new = parts.refetching.begin_anew(former, "two")
    assert parts.refetching.made_anew() == [], "what was told before is no news"
    brokers.topic_id = "one"
    assert look(parts, clock) == [], "a broker that has not heard of it yet"
    assert parts.refetching.other_id(new) is None
    assert current(parts) is new


def test_an_id_that_is_not_told_is_the_one_that_the_start_is_remembered_with(
    make_parts: Callable[[], Parts], brokers: Brokers, clock: Clock
) -> None:
    first = make_parts()
    read = assigned(first)
    read.tracker.register(range(5)).finish(range(5))
    assert first.committer.commit()
    first.rebalancer.on_lost(first.consumer, [confluent_kafka.TopicPartition(*PLACE)])

    brokers.topic_id = None
    parts = make_parts()
    again = assigned(parts)
    assert (again.start.offset, again.topic_id) == (5, "one")
    assert remembered(parts) == {"one"}
    brokers.topic_id = "two"
    assert look(parts, clock) == [(again, "two")]
    parts.refetching.begin_anew(again, "two")
    brokers.topic_id = "one"
    assert look(parts, clock) == []


def test_an_id_that_nobody_knew_is_taken_when_it_is_told(
    make_parts: Callable[[], Parts], brokers: Brokers, clock: Clock
) -> None:
    brokers.topic_id = None
    parts = make_parts()
    read = assigned(parts)
    read.tracker.register(range(5)).finish(range(5))
    assert parts.committer.commit()
    assert remembered(parts) == {None}
    brokers.topic_id = "one"
    assert look(parts, clock) == []
    assert parts.committer.commit()
    assert remembered(parts) == {"one"}
    brokers.topic_id = "two"
    assert look(parts, clock) == [(read, "two")]
