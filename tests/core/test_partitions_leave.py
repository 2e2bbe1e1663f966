"""What of a partition is committed when it leaves, and while its records wait for room, on mock brokers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from building import TOPIC, configuration, record
from confluent_kafka import Producer
from memory_store import loaded
from told_ids import Brokers

from offsets.types import TopicPartition
from worker.running.components import Components
from worker.units.assigned_partition import Assignment

Make = Callable[..., Components]
PLACE = TopicPartition(TOPIC, 0)


@pytest.fixture
def make_components(mock_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setattr("worker.running.components.KAFKA_SECONDS", 3.0)  # that one commit waits
    # Mock brokers tell no ids of topics.
    monkeypatch.setattr("worker.running.components.AdminClient", lambda *_, **__: Brokers("one"))
    made: list[Components] = []

    def make(group: str, **sections: Any) -> Components:
        settings = configuration(
            kafka={
                "bootstrap_servers": mock_servers,
                "group_id": group,
                "topics": [TOPIC],
                "properties": {"log_level": 2},
            },
            checkpoint={"directory": str(tmp_path / group), "initial": "earliest"},
            **sections,
        )
        stop = threading.Event()
        made.append(components := Components(settings, clock=time.monotonic, fail=pytest.fail, stop=stop))
        return components

    yield make
    for components in made:
        components.lanes.stop()
        components.consumer.close()


@pytest.fixture(scope="module", autouse=True)
def records(_mock_servers: str) -> None:
    """In the topic's first partition."""
    producer = Producer({"bootstrap.servers": _mock_servers, "log_level": 2})
    for offset in range(10):
        producer.produce(TOPIC, record(offset).value(), partition=0)
    assert producer.flush(10) == 0


def three_of_five_finished(components: Components) -> Assignment:
    """The partition has come; of five records that were fetched the first three are finished."""
    components.kafka.attach(components.consumer)
    components.rebalancer.on_assign(components.consumer, [confluent_kafka.TopicPartition(*PLACE)])
    assignment = components.assignments.get(*PLACE)
    assert assignment is not None
    assignment.tracker.register(range(5)).finish(range(3))
    return assignment


def committed(components: Components) -> tuple[int | None, int | None]:
    """Up to where, in Kafka and in the local file."""
    found = [loaded(store, [PLACE]).get(PLACE) for store in (components.kafka, components.local)]
    in_kafka, on_disk = (None if each is None else each.offset for each in found)
    return in_kafka, on_disk


def test_what_is_finished_of_a_partition_is_committed_when_it_leaves(make_components: Make) -> None:
    components = make_components("leaves")
    three_of_five_finished(components)
    components.rebalancer.on_revoke(components.consumer, [confluent_kafka.TopicPartition(*PLACE)])
    assert committed(components) == (3, 3)


def test_nothing_is_committed_of_a_partition_that_is_lost(make_components: Make) -> None:
    """Another member may own it already, and have gone further."""
    components = make_components("lost")
    three_of_five_finished(components)
    before = committed(components)
    components.rebalancer.on_lost(components.consumer, [confluent_kafka.TopicPartition(*PLACE)])
    assert components.committer.commit()
    assert committed(components) == before
    assert 3 not in before


def test_commits_go_on_while_the_fetcher_waits_for_room(make_components: Make) -> None:
    """No processor runs: what the lanes hold stays there, and the fetcher holds the rest."""
    components = make_components("waits", lanes={"count": 1, "max_records": 2}, revoke_timeout="100ms")
    components.kafka.attach(components.consumer)
    components.fetcher.start()
    components.committer.start()
    try:
        until(lambda: components.lanes.seen.pressed)
        assignment = components.assignments.get(*PLACE)
        assert assignment is not None
        work = components.lanes.take(0)
        assert work is not None
        work.finish_records(1)
        assert any(components.committer.commit() for _ in range(5))  # one may meet the rebalance's end
        assert assignment.committed == 1
        assert components.lanes.seen.pressed
    finally:
        components.committer.stop()
        components.fetcher.close()
        components.fetcher.join(30)
    assert not components.fetcher.is_alive()


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)
