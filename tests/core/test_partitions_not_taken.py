"""Partitions that come while the worker stops bring nothing."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import confluent_kafka
import pytest
from building import configuration
from confluent_kafka import Consumer
from members import RECORDS

from worker.kafka.errors import Stopping
from worker.running.components import Components


def read(consumer: Consumer, seconds: float, enough: int) -> int:
    """How many records come within so many seconds, or until there are enough."""
    end, found = time.monotonic() + seconds, 0
    while found < enough and time.monotonic() < end:
        found += sum(message.error() is None for message in consumer.consume(500, 0.05))
    return found


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_nothing_of_them_is_fetched(
    mock_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    group = f"not-taken-{strategy}"
    settings = configuration(
        kafka={
            "bootstrap_servers": mock_servers,
            "group_id": group,
            "topics": ["t"],
            "properties": {"partition.assignment.strategy": strategy},
        },
        checkpoint={"directory": str(tmp_path)},
    )
    places = [confluent_kafka.TopicPartition("t", number, 0) for number in range(4)]
    other = Consumer({"bootstrap.servers": mock_servers, "group.id": group, "enable.auto.commit": False})
    other.commit(offsets=places, asynchronous=False)
    components = Components(settings, clock=time.monotonic, fail=pytest.fail, stop=threading.Event())
    consumer, came = components.consumer, threading.Event()
    components.kafka.attach(consumer)

    def stopping(*_: object) -> dict[str, str]:
        came.set()
        raise Stopping

    monkeypatch.setattr(components.rebalancer.starts, "topic_ids", stopping)
    consumer.subscribe(["t"], on_assign=components.rebalancer.on_assign)
    deadline = time.monotonic() + 60
    while not came.is_set() and time.monotonic() < deadline:
        assert read(consumer, 0.1, 1) == 0
    assert came.is_set()
    assert read(consumer, 1.0, 1) == 0
    consumer.resume(consumer.assignment())
    assert read(consumer, 1.0, 1) == 0  # they would go on at their end: fetching may begin before the pause
    for place in places:  # they are there, and have something
        consumer.seek(place)
    assert read(consumer, 30.0, 4 * RECORDS) == 4 * RECORDS
    consumer.close()
    other.close()
