"""Checkpoints as commits to a real broker: metadata, refusals, a broker that does not answer."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import Consumer
from integration.process import eventually
from memory_store import loaded
from structlog.testing import capture_logs

from offsets import metadata
from offsets.stores.interface import CheckpointError
from offsets.stores.kafka import KafkaStore, load_committed
from offsets.stores.polled import PolledKafkaStore
from offsets.types import Checkpoint, OffsetRange, TopicPartition
from worker.local.broker import Broker

MakeConsumer = Callable[..., Consumer]


@pytest.fixture(scope="module")
def frugal_broker() -> Iterator[Broker]:
    with Broker(overrides={"offset.metadata.max.bytes": "400"}) as broker:
        yield broker


def every_second(offset: int, count: int, step: int = 2) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange(offset + step * n, offset + step * n + 1) for n in range(1, count + 1))


@contextmanager
def not_answering(broker: Broker) -> Iterator[None]:
    """The broker's process stands still: its sockets stay open, and nothing answers."""
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        # A thread may run on for a moment, and answer.
        eventually(lambda: set(states_of_threads(broker.pid)) == {"T"}, what="the broker stands still")
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def states_of_threads(pid: int) -> list[str]:
    """As proc(5) calls them: "T" is stopped."""
    stats = (task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/stat"))
    return [stat.rpartition(")")[2].split()[0] for stat in stats]


def committed(consumer: Consumer, partition: TopicPartition) -> confluent_kafka.TopicPartition:
    return consumer.committed([confluent_kafka.TopicPartition(*partition)], timeout=20)[0]


def test_metadata_of_the_full_length_comes_back_whole(
    make_consumer: MakeConsumer, shared_topic: str, group: str
) -> None:
    consumer, partition = make_consumer(group), TopicPartition(shared_topic, 0)
    longest = "x" * 4_095
    consumer.commit(offsets=[confluent_kafka.TopicPartition(shared_topic, 0, 5, longest)], asynchronous=False)
    assert committed(consumer, partition).metadata == longest
    store = KafkaStore(make_consumer(group), deadline=20)
    ahead = tuple(OffsetRange(place := 10 + n * n * 1_000, place + 1 + n % 7) for n in range(1, 3_000))
    store.save({partition: Checkpoint(10, ahead)})
    found = loaded(store, [partition])[partition]
    store.close()
    assert len(committed(consumer, partition).metadata or "") > 3_900
    assert found.offset == 10
    assert found.ahead == ahead[: len(found.ahead)]
    assert len(found.ahead) > 500


@pytest.mark.parametrize("foreign", ["NO_METADATA", "grüße", "x" * 4_000])
def test_the_metadata_of_another_program_counts_as_nothing_ahead(
    make_consumer: MakeConsumer, shared_topic: str, group: str, foreign: str
) -> None:
    consumer = make_consumer(group)
    consumer.commit(offsets=[confluent_kafka.TopicPartition(shared_topic, 0, 5, foreign)], asynchronous=False)
    store = KafkaStore(consumer, deadline=20)
    assert loaded(store, [TopicPartition(shared_topic, 0)]) == {
        TopicPartition(shared_topic, 0): Checkpoint(5)
    }
    store.close()


def test_ranges_of_an_offset_that_somebody_moved_are_not_believed(
    make_consumer: MakeConsumer, shared_topic: str, group: str
) -> None:
    """A tool that sets another offset but keeps the metadata."""
    consumer = make_consumer(group)
    text = metadata.encode(Checkpoint(10, every_second(10, 5)))
    consumer.commit(offsets=[confluent_kafka.TopicPartition(shared_topic, 0, 3, text)], asynchronous=False)
    store = KafkaStore(consumer, deadline=20)
    assert loaded(store, [TopicPartition(shared_topic, 0)]) == {
        TopicPartition(shared_topic, 0): Checkpoint(3)
    }
    store.close()


def test_a_refused_commit_names_its_partitions(
    make_consumer: MakeConsumer, shared_topic: str, group: str
) -> None:
    store = KafkaStore(make_consumer(group), deadline=20)
    with pytest.raises(CheckpointError, match=rf"{shared_topic}\[99\].*Unknown topic or partition"):
        store.save(
            {TopicPartition(shared_topic, 0): Checkpoint(5), TopicPartition(shared_topic, 99): Checkpoint(5)}
        )
    store.save({TopicPartition(shared_topic, 0): Checkpoint(6)})
    assert loaded(store, [TopicPartition(shared_topic, 0)]) == {
        TopicPartition(shared_topic, 0): Checkpoint(6)
    }
    store.close()


def test_metadata_of_many_partitions_shares_the_room_of_one_request(
    broker: Broker, make_consumer: MakeConsumer, group: str
) -> None:
    """300 times 4,000 characters would be over the 1 MiB that the broker writes at once."""
    topic = broker.create_topic(f"cdc.{uuid.uuid4().hex[:8]}", 300)
    ahead = tuple(OffsetRange(place := 10 + n * n * 1_000, place + 1 + n % 7) for n in range(1, 3_000))
    store = KafkaStore(make_consumer(group), deadline=30)
    checkpoints = {TopicPartition(topic, number): Checkpoint(10, ahead) for number in range(300)}
    store.save(checkpoints)
    found = loaded(store, checkpoints)
    store.close()
    assert len(found) == 300
    for checkpoint in found.values():
        assert len(checkpoint.ahead) > 200
        assert checkpoint == Checkpoint(10, ahead[: len(checkpoint.ahead)])


def test_what_is_held_is_known_by_the_commit_that_brought_it(
    make_consumer: MakeConsumer, shared_topic: str, group: str
) -> None:
    partition = TopicPartition(shared_topic, 0)
    consumer = make_consumer(group)
    one, other = KafkaStore(consumer, deadline=20), KafkaStore(make_consumer(group), deadline=20)
    mine = one.save({partition: Checkpoint(10, every_second(10, 5), "the-id", 3)})
    held = one.load_committed([partition])[partition]
    assert held.checkpoint == Checkpoint(10, every_second(10, 5), "the-id", 3)
    assert held.mark == mine[partition]
    same = other.save({partition: Checkpoint(10, every_second(10, 5), "the-id", 3)})
    assert one.load_committed([partition])[partition].mark == same[partition] != mine[partition]
    for each in (one, other):
        each.close()
    # As kafka-consumer-groups.sh --reset-offsets does, to where it stands.
    consumer.commit(offsets=[confluent_kafka.TopicPartition(*partition, 10)], asynchronous=False)
    assert load_committed(consumer, [partition], 20)[partition].mark not in (*mine.values(), *same.values())


def test_a_broker_that_takes_less_metadata_gets_less_at_once_and_from_then_on(
    frugal_broker: Broker, make_consumer: MakeConsumer, group: str
) -> None:
    topic = frugal_broker.create_topic(group, 2)
    consumer = make_consumer(group, frugal_broker)
    store = KafkaStore(consumer, deadline=20)
    ahead = tuple(OffsetRange(place := 10 + n * n * 1_000, place + 1 + n % 7) for n in range(1, 3_000))
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with capture_logs() as logs:
        store.save({first: Checkpoint(10, ahead, "the-id"), second: Checkpoint(4)})
    assert {each["event"] for each in logs} == {"commit_metadata_too_large"}
    held = loaded(store, [first, second])
    assert held[first].ahead == ahead[: len(held[first].ahead)]
    assert len(held[first].ahead) > 20
    assert held[second] == Checkpoint(4)
    with capture_logs() as logs:
        store.save({first: Checkpoint(10, ahead, "the-id")})
    assert logs == []
    store.close()
    polled = PolledKafkaStore(deadline=20)
    polled.attach(consumer)
    polled.save({first: Checkpoint(11, ahead, "the-id")})
    assert len(loaded(polled, [first])[first].ahead) > 20


def test_a_commit_without_an_answer_fails_at_its_deadline_and_holds_back_the_next(
    own_broker: Broker, make_consumer: MakeConsumer, group: str
) -> None:
    topic = own_broker.create_topic(group, 2)
    store = KafkaStore(make_consumer(group, own_broker), deadline=20)
    partition, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    store.save({partition: Checkpoint(5)})
    impatient = KafkaStore(make_consumer(group, own_broker), deadline=1)
    loaded(impatient, [partition])  # so that the coordinator is known
    with not_answering(own_broker):
        with pytest.raises(CheckpointError, match="still under way"):
            impatient.save({partition: Checkpoint(6)})
        begun = time.monotonic()
        with pytest.raises(CheckpointError, match="earlier commit to Kafka is still under way"):
            impatient.save({other: Checkpoint(9)})
        with pytest.raises(CheckpointError, match="earlier commit to Kafka is still under way"):
            loaded(impatient, [partition])
        assert time.monotonic() - begun < 1
    eventually(lambda: not impatient.alive, what="the broker answers")
    assert loaded(store, [partition, other]) == {partition: Checkpoint(6)}
    impatient.save({other: Checkpoint(10)})
    assert loaded(store, [other]) == {other: Checkpoint(10)}
    for each in (store, impatient):
        each.close()


def test_a_broker_that_does_not_answer_is_told(
    own_broker: Broker, make_consumer: MakeConsumer, group: str
) -> None:
    partition = TopicPartition(own_broker.create_topic(group), 0)
    store = KafkaStore(make_consumer(group, own_broker), deadline=0.5)
    with (
        not_answering(own_broker),
        pytest.raises(CheckpointError, match="cannot read the group's committed offsets"),
    ):
        loaded(store, [partition])
    store.close()


def test_closing_does_not_wait_for_a_broker_that_does_not_answer(
    own_broker: Broker, make_consumer: MakeConsumer, group: str
) -> None:
    topic = own_broker.create_topic(group, 2)
    store = KafkaStore(make_consumer(group, own_broker), deadline=1)
    eventually(lambda: loaded(store, [TopicPartition(topic, 0)]) == {}, what="the coordinator is known")
    with not_answering(own_broker):
        with pytest.raises(CheckpointError, match="still under way"):
            store.save({TopicPartition(topic, 0): Checkpoint(6)})
        begun = time.monotonic()
        store.close()
        assert time.monotonic() - begun < 3
        assert store.alive
    eventually(lambda: not store.alive, what="the broker answers")
