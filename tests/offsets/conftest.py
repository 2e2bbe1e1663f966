"""Stores for tests, on a real broker and real files."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer

from worker.broker import Broker

MakeConsumer = Callable[..., Consumer]
PARTITIONS = 3


@pytest.fixture(scope="session")
def shared_topic(broker: Broker) -> str:
    """A topic of three partitions; tests keep apart by their groups."""
    return broker.create_topic(f"cdc.{uuid.uuid4().hex[:8]}", PARTITIONS)


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def make_consumer(broker: Broker) -> Iterator[MakeConsumer]:
    """make_consumer(group): a consumer that subscribes to nothing; also (group, another broker)."""
    made: list[Consumer] = []

    def make(group: str, node: Broker = broker) -> Consumer:
        settings = {
            "bootstrap.servers": node.bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": "false",
        }
        made.append(Consumer(settings))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


@pytest.fixture(scope="module")
def own_broker() -> Iterator[Broker]:
    """A broker that a test may disturb."""
    with Broker() as broker:
        yield broker
