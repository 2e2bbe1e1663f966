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
from worker.running.components import Components
from worker.units.assigned_partition import Assignment

PLACE = TopicPartition("t", 0)


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    found = Brokers("one")
    monkeypatch.setattr("worker.running.components.AdminClient", lambda *_, **__: found)
    return found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make_components(
    mock_servers: str, tmp_path: Path, clock: Clock, brokers: Brokers
) -> Iterator[Callable[[], Components]]:
    made: list[Components] = []

    def make() -> Components:
        settings = configuration(
            kafka={
                "bootstrap_servers": mock_servers,
                "group_id": f"ids-{tmp_path.name}",
                "topics": ["t"],
                "properties": {"log_level": 2},
            },
            checkpoint={"directory": str(tmp_path), "initial": "earliest"},
        )
        made.append(components := Components(settings, clock=clock, fail=pytest.fail, stop=threading.Event()))
        components.kafka.attach(components.consumer)
        return components

    yield make
    for components in made:
        components.consumer.close()


def assigned(components: Components) -> Assignment:
    components.rebalancer.on_assign(components.consumer, [confluent_kafka.TopicPartition(*PLACE)])
    return current(components)


def current(components: Components) -> Assignment:
    found = components.assignments.get(*PLACE)
    assert found is not None
    return found


def look(components: Components, clock: Clock) -> list[tuple[Assignment, str]]:
    clock.now += 5
    components.refetching.between_polls(clock.now)
    return components.refetching.made_anew()


def remembered(components: Components) -> set[str | None]:
    """By the local file and by Kafka."""
    in_file = components.local.load_entries([PLACE])[PLACE].checkpoint
    return {in_file.topic_id, components.kafka.load_committed([PLACE])[PLACE].checkpoint.topic_id}


def test_a_topic_is_never_read_again_under_an_id_that_it_had_before(
    make_components: Callable[[], Components], brokers: Brokers, clock: Clock
) -> None:
    components = make_components()
    former = assigned(components)
    assert look(components, clock) == []
    brokers.topic_id = "two"
    assert components.refetching.other_id(former) == "two"
    new = components.refetching.begin_anew(former, "two")
    assert components.refetching.made_anew() == [], "what was told before is no news"
    brokers.topic_id = "one"
    assert look(components, clock) == [], "a broker that has not heard of it yet"
    assert components.refetching.other_id(new) is None
    assert current(components) is new


def test_an_id_that_is_not_told_is_the_one_that_the_start_is_remembered_with(
    make_components: Callable[[], Components], brokers: Brokers, clock: Clock
) -> None:
    first = make_components()
    read = assigned(first)
    read.tracker.register(range(5)).finish(range(5))
    assert first.committer.commit()
    first.rebalancer.on_lost(first.consumer, [confluent_kafka.TopicPartition(*PLACE)])

    brokers.topic_id = None
    components = make_components()
    again = assigned(components)
    assert (again.start.offset, again.topic_id) == (5, "one")
    assert remembered(components) == {"one"}
    brokers.topic_id = "two"
    assert look(components, clock) == [(again, "two")]
    components.refetching.begin_anew(again, "two")
    brokers.topic_id = "one"
    assert look(components, clock) == []


def test_an_id_that_nobody_knew_is_taken_when_it_is_told(
    make_components: Callable[[], Components], brokers: Brokers, clock: Clock
) -> None:
    brokers.topic_id = None
    components = make_components()
    read = assigned(components)
    read.tracker.register(range(5)).finish(range(5))
    assert components.committer.commit()
    assert remembered(components) == {None}
    brokers.topic_id = "one"
    assert look(components, clock) == []
    assert components.committer.commit()
    assert remembered(components) == {"one"}
    brokers.topic_id = "two"
    assert look(components, clock) == [(read, "two")]
