"""One contract, three stores: what every checkpoint store must do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from offsets.stores import CheckpointStore, FileStore, KafkaStore, MemoryStore
from offsets.types import Checkpoint, OffsetRange, TopicPartition

MakeStore = Callable[[], CheckpointStore]

AHEAD = (OffsetRange(12, 15), OffsetRange(20, 21), OffsetRange(1_000, 2_000))


@pytest.fixture(params=["memory", "file", "kafka"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path, group: str) -> Iterator[MakeStore]:
    """Each call gives a store of the same group and place, as a restart would."""
    stores: list[CheckpointStore] = []
    memory = MemoryStore()

    def make() -> CheckpointStore:
        store: CheckpointStore
        if request.param == "memory":
            store = memory
        elif request.param == "file":
            store = FileStore(tmp_path / "state", group)
        else:
            make_consumer: Callable[[str], Consumer] = request.getfixturevalue("make_consumer")
            store = KafkaStore(make_consumer(group), deadline=20)
        stores.append(store)
        return store

    if request.param == "kafka":
        request.getfixturevalue("make_consumer")  # so that it is taken down after the stores
    yield make
    for store in stores:
        store.close()


@pytest.fixture
def store(make_store: MakeStore) -> CheckpointStore:
    return make_store()


@pytest.fixture
def partitions(request: pytest.FixtureRequest, make_store: MakeStore) -> list[TopicPartition]:
    """Three partitions; real ones where the store asks for that."""
    kafka = "kafka" in request.node.callspec.id.split("-")
    topic: str = request.getfixturevalue("shared_topic") if kafka else "cdc.shop"
    return [TopicPartition(topic, number) for number in range(3)]


def test_its_name_is_the_metrics_label(store: CheckpointStore) -> None:
    assert store.name == {MemoryStore: "memory", FileStore: "file", KafkaStore: "kafka"}[type(store)]


def test_what_was_never_saved_is_left_out(store: CheckpointStore, partitions: list[TopicPartition]) -> None:
    store.save({partitions[1]: Checkpoint(5)})
    assert store.load(partitions) == {partitions[1]: Checkpoint(5)}
    assert store.load([]) == {}


def test_what_was_saved_comes_back_whole(store: CheckpointStore, partitions: list[TopicPartition]) -> None:
    saved = {
        partitions[0]: Checkpoint(10, AHEAD),
        partitions[1]: Checkpoint(0),
        partitions[2]: Checkpoint(2**40, (OffsetRange(2**40 + 1, 2**40 + 2),)),
    }
    store.save(saved)
    assert store.load(partitions) == saved


def test_a_restart_knows_what_was_saved(make_store: MakeStore, partitions: list[TopicPartition]) -> None:
    make_store().save({partitions[0]: Checkpoint(10, AHEAD)})
    assert make_store().load(partitions) == {partitions[0]: Checkpoint(10, AHEAD)}


def test_a_later_save_replaces_the_ranges_too(
    store: CheckpointStore, partitions: list[TopicPartition]
) -> None:
    store.save({partitions[0]: Checkpoint(10, AHEAD)})
    store.save({partitions[0]: Checkpoint(15)})
    assert store.load(partitions) == {partitions[0]: Checkpoint(15)}


def test_a_position_can_be_set_back(store: CheckpointStore, partitions: list[TopicPartition]) -> None:
    store.save({partitions[0]: Checkpoint(10)})
    store.save({partitions[0]: Checkpoint(3)})
    assert store.load(partitions) == {partitions[0]: Checkpoint(3)}


def test_saving_some_partitions_leaves_the_others(
    store: CheckpointStore, partitions: list[TopicPartition]
) -> None:
    store.save({partitions[0]: Checkpoint(10, AHEAD), partitions[1]: Checkpoint(7)})
    store.save({partitions[1]: Checkpoint(8)})
    assert store.load(partitions) == {partitions[0]: Checkpoint(10, AHEAD), partitions[1]: Checkpoint(8)}


def test_saving_nothing_changes_nothing(store: CheckpointStore, partitions: list[TopicPartition]) -> None:
    store.save({partitions[0]: Checkpoint(10, AHEAD)})
    store.save({})
    assert store.load(partitions) == {partitions[0]: Checkpoint(10, AHEAD)}


def test_only_what_is_asked_for_is_loaded(store: CheckpointStore, partitions: list[TopicPartition]) -> None:
    store.save({partition: Checkpoint(9) for partition in partitions})
    assert store.load(partitions[:1]) == {partitions[0]: Checkpoint(9)}


def test_threads_that_save_different_partitions_lose_nothing(
    store: CheckpointStore, partitions: list[TopicPartition]
) -> None:
    def save(partition: TopicPartition) -> None:
        for offset in range(1, 21):
            store.save({partition: Checkpoint(offset)})

    threads = [threading.Thread(target=save, args=(partition,)) for partition in partitions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.load(partitions) == {partition: Checkpoint(20) for partition in partitions}


def test_it_may_be_closed_twice(store: CheckpointStore) -> None:
    store.close()
    store.close()
