"""Stores for tests, on a real broker and real files."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from checkpoint_site import RECORDS, TEN, Site
from confluent_kafka import Consumer, Producer

from offsets.stores.file import FileStore
from worker.local.broker import Broker

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


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    """The file of the group `replica`, which is not there yet."""
    return FileStore(tmp_path, "replica")


@pytest.fixture
def site(broker: Broker, group: str, tmp_path: Path) -> Site:
    """Ten records in the first of two partitions; the group never ran."""
    topic = broker.create_topic(f"cdc.{group}", 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    for hour in range(RECORDS):
        moment = int(TEN.timestamp() * 1000) + hour * 3_600_000
        producer.produce(topic, b"{}", partition=0, timestamp=moment)
    assert producer.flush(20) == 0
    return Site(broker.bootstrap_servers, topic, group, tmp_path)
