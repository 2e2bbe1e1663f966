"""`checkpoint.force` on a group of librdkafka's mock broker: two members with it share a partition."""

from __future__ import annotations

import threading
from pathlib import Path

import confluent_kafka
import pytest
from building import Clock, configuration
from confluent_kafka import Producer
from structlog.testing import capture_logs

from worker.running.components import Components


def member(servers: str, folder: Path) -> Components:
    settings = configuration(
        kafka={
            "bootstrap_servers": servers,
            "group_id": "forced",
            "topics": ["t", "late"],
            "properties": {"log_level": 2},
        },
        checkpoint={"directory": str(folder), "force": True},
    )
    components = Components(settings, clock=Clock(), fail=pytest.fail, stop=threading.Event())
    components.kafka.attach(components.consumer)
    components.rebalancer.starts.begin(components.consumer)
    return components


def come_and_go(components: Components, *, commit: int | None = None, topic: str = "t") -> str:
    """The partition comes, so far is committed, and it leaves; returns where it began and by whose word."""
    place = confluent_kafka.TopicPartition(topic, 0)
    with capture_logs() as logged:
        components.rebalancer.on_assign(components.consumer, [place])
    if commit is not None:
        offsets = [confluent_kafka.TopicPartition("t", 0, commit)]
        components.consumer.commit(offsets=offsets, asynchronous=False)
    components.rebalancer.on_lost(components.consumer, [place])
    components.consumer.incremental_unassign([place])
    (told,) = (line for line in logged if line["event"] == "partition_assigned")
    return f"{told['source']} {told['start']}"


def test_a_partition_is_forced_until_the_group_has_committed_since_the_member_began(
    mock_servers: str, tmp_path: Path
) -> None:
    first = member(mock_servers, tmp_path / "first")
    second = member(mock_servers, tmp_path / "second")
    assert come_and_go(first) == "force earliest"
    assert come_and_go(second) == "force earliest", "nothing was committed"
    assert come_and_go(first, commit=5) == "force earliest"
    assert come_and_go(second, commit=9) == "kafka 5", "it came from one that had begun anew"
    assert come_and_go(first) == "kafka 9"

    again = member(mock_servers, tmp_path / "first")
    assert come_and_go(again) == "force earliest", "each start of a worker counts"
    for each in (first, second, again):
        each.consumer.close()


def test_what_comes_to_be_while_a_forced_worker_runs_begins_as_without_force(
    mock_servers: str, tmp_path: Path
) -> None:
    components = member(mock_servers, tmp_path)
    producer = Producer({"bootstrap.servers": mock_servers})
    producer.produce("late", b"x", partition=0)
    assert producer.flush(10) == 0
    assert come_and_go(components, topic="late") == "initial earliest"
    assert come_and_go(components) == "force earliest"
    components.consumer.close()
