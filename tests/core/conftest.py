from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from members import RECORDS, Member


@pytest.fixture(scope="session")
def mock_servers() -> Iterator[str]:
    """Mock brokers with a topic `t`."""
    producer = Producer({"bootstrap.servers": "mock:1", "test.mock.num.brokers": 1, "log_level": 2})
    (node,) = producer.list_topics(timeout=10).brokers.values()
    for partition in range(4):
        for _ in range(RECORDS):
            producer.produce("t", b"x", partition=partition)
    assert producer.flush(10) == 0
    yield f"{node.host}:{node.port}"
    producer.flush(0)


@pytest.fixture
def member(mock_servers: str) -> Iterator[Callable[[str], Member]]:
    made: list[Member] = []

    def make(strategy: str) -> Member:
        made.append(Member(mock_servers, strategy))
        return made[-1]

    yield make
    for each in made:
        each.consumer.close()
