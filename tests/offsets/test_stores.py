"""One contract, each kind of store: what every checkpoint store must do, and those beside Kafka."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from memory_store import MemoryStore, loaded

from handlers.sql.target.engine import check_url
from offsets.stores.file import FileStore
from offsets.stores.file_format import FileEntry
from offsets.stores.interface import OwnStore, StoreAway
from offsets.stores.kafka import KafkaStore
from offsets.stores.sql import SqlStore
from offsets.types import Checkpoint, Mark, OffsetRange, TopicPartition

MakeStore = Callable[[], OwnStore]
MakeOwn = Callable[..., OwnStore]

AHEAD = (OffsetRange(12, 15), OffsetRange(20, 21), OffsetRange(1_000, 2_000))


SQL = ["sql-sqlite", "sql-postgresql", "sql-mariadb"]
OWN = ["file", *SQL]


def sql_url(request: pytest.FixtureRequest, kind: str, folder: Path) -> str:
    """A database of one's own; SQLite's is a file of the test's folder."""
    if kind == "sql-sqlite":
        return f"sqlite:///{folder}/checkpoints.db"
    server = request.getfixturevalue("postgres" if kind == "sql-postgresql" else "mariadb")
    return str(server.new_database(f"checkpoints_{uuid.uuid4().hex[:8]}"))


@pytest.fixture
def make_own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeOwn]:
    """make_own(group, identity): a store beside Kafka, always in the same place, as of other processes."""
    kind: str = request.param
    url = None if kind == "file" else check_url(sql_url(request, kind, tmp_path))
    stores: list[OwnStore] = []

    def make(group: str, identity: str | None = None) -> OwnStore:
        if url is None:
            stores.append(FileStore(tmp_path / "state", group, identity=identity))
        else:
            stores.append(SqlStore(url, group, identity=identity))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.fixture(params=["memory", "file", "kafka", *SQL])
def make_store(request: pytest.FixtureRequest, tmp_path: Path, group: str) -> Iterator[MakeStore]:
    """Each call gives a store of the same group and place, as a restart would."""
    stores: list[OwnStore] = []
    memory = MemoryStore()
    url = check_url(sql_url(request, request.param, tmp_path)) if request.param in SQL else None

    def make() -> OwnStore:
        store: OwnStore
        if request.param == "memory":
            store = memory
        elif request.param == "file":
            store = FileStore(tmp_path / "state", group)
        elif url is not None:
            store = SqlStore(url, group)
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
def store(make_store: MakeStore) -> OwnStore:
    return make_store()


@pytest.fixture
def partitions(request: pytest.FixtureRequest, make_store: MakeStore) -> list[TopicPartition]:
    """Three partitions; real ones where the store asks for that."""
    kafka = "kafka" in request.node.callspec.id.split("-")
    topic: str = request.getfixturevalue("shared_topic") if kafka else "cdc.shop"
    return [TopicPartition(topic, number) for number in range(3)]


def test_its_name_is_the_metrics_label(store: OwnStore) -> None:
    assert (
        store.name
        == {
            MemoryStore: "memory",
            FileStore: "file",
            KafkaStore: "kafka",
            SqlStore: "sql",
        }[type(store)]
    )


def test_what_was_never_saved_is_left_out(store: OwnStore, partitions: list[TopicPartition]) -> None:
    store.save({partitions[1]: Checkpoint(5)})
    assert loaded(store, partitions) == {partitions[1]: Checkpoint(5)}
    assert loaded(store, []) == {}


def test_what_was_saved_comes_back_whole(store: OwnStore, partitions: list[TopicPartition]) -> None:
    saved = {
        partitions[0]: Checkpoint(10, AHEAD),
        partitions[1]: Checkpoint(0),
        partitions[2]: Checkpoint(2**40, (OffsetRange(2**40 + 1, 2**40 + 2),)),
    }
    store.save(saved)
    assert loaded(store, partitions) == saved


def test_a_restart_knows_what_was_saved(make_store: MakeStore, partitions: list[TopicPartition]) -> None:
    make_store().save({partitions[0]: Checkpoint(10, AHEAD)})
    assert loaded(make_store(), partitions) == {partitions[0]: Checkpoint(10, AHEAD)}


def test_a_later_save_replaces_the_ranges_too(store: OwnStore, partitions: list[TopicPartition]) -> None:
    store.save({partitions[0]: Checkpoint(10, AHEAD)})
    store.save({partitions[0]: Checkpoint(15)})
    assert loaded(store, partitions) == {partitions[0]: Checkpoint(15)}


def test_a_position_can_be_set_back(store: OwnStore, partitions: list[TopicPartition]) -> None:
    store.save({partitions[0]: Checkpoint(10)})
    store.save({partitions[0]: Checkpoint(3)})
    assert loaded(store, partitions) == {partitions[0]: Checkpoint(3)}


def test_saving_some_partitions_leaves_the_others(store: OwnStore, partitions: list[TopicPartition]) -> None:
    store.save({partitions[0]: Checkpoint(10, AHEAD), partitions[1]: Checkpoint(7)})
    store.save({partitions[1]: Checkpoint(8)})
    assert loaded(store, partitions) == {partitions[0]: Checkpoint(10, AHEAD), partitions[1]: Checkpoint(8)}


def test_saving_nothing_changes_nothing(store: OwnStore, partitions: list[TopicPartition]) -> None:
    store.save({partitions[0]: Checkpoint(10, AHEAD)})
    store.save({})
    assert loaded(store, partitions) == {partitions[0]: Checkpoint(10, AHEAD)}


def test_only_what_is_asked_for_is_loaded(store: OwnStore, partitions: list[TopicPartition]) -> None:
    store.save({partition: Checkpoint(9) for partition in partitions})
    assert loaded(store, partitions[:1]) == {partitions[0]: Checkpoint(9)}


def test_threads_that_save_different_partitions_lose_nothing(
    store: OwnStore, partitions: list[TopicPartition]
) -> None:
    def save(partition: TopicPartition) -> None:
        for offset in range(1, 21):
            store.save({partition: Checkpoint(offset)})

    threads = [threading.Thread(target=save, args=(partition,)) for partition in partitions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loaded(store, partitions) == {partition: Checkpoint(20) for partition in partitions}


def test_it_may_be_closed_twice(store: OwnStore) -> None:
    store.close()
    store.close()


SHOP, STOCK = TopicPartition("cdc.shop", 0), TopicPartition("cdc.stock", 7)


@pytest.mark.parametrize("make_own", OWN, indirect=True)
def test_groups_and_topics_of_one_store_keep_apart(make_own: MakeOwn) -> None:
    one, other, shouting = make_own("one"), make_own("other"), make_own("ONE")
    one.save({SHOP: Checkpoint(10, AHEAD, "id-1", 3), STOCK: Checkpoint(5)}, {SHOP: Mark(10, 77)})
    other.save({SHOP: Checkpoint(99)})
    shouting.save({SHOP: Checkpoint(7)})
    one.save({STOCK: Checkpoint(6)})
    entry = FileEntry(10, AHEAD, Mark(10, 77), "id-1", 3)
    for each in (one, make_own("one")):
        assert each.load_entries([SHOP, STOCK, TopicPartition("cdc.shop", 1)]) == {
            SHOP: entry,
            STOCK: FileEntry(6),
        }
        assert each.entries() == {SHOP: entry, STOCK: FileEntry(6)}
    assert make_own("other").entries() == {SHOP: FileEntry(99)}
    assert make_own("ONE").entries() == {SHOP: FileEntry(7)}
    assert make_own("nobody").entries() == {}


@pytest.mark.parametrize("make_own", OWN, indirect=True)
def test_a_save_replaces_what_another_writer_knew_of_kafka(make_own: MakeOwn) -> None:
    make_own("one").save({SHOP: Checkpoint(10)}, {SHOP: Mark(10, 77)})
    make_own("one").save({SHOP: Checkpoint(10)})
    assert make_own("one").entries() == {SHOP: FileEntry(10)}


@pytest.mark.parametrize("make_own", OWN, indirect=True)
def test_names_and_ranges_of_any_size_come_back(make_own: MakeOwn) -> None:
    group = "gruppe-" + "\N{SNOWMAN}\N{PILE OF POO}" * 300
    ranges = tuple(OffsetRange(offset, offset + 1) for offset in range(2**60, 2**60 + 40_000, 2))
    place = TopicPartition("t" * 249, 2**31 - 1)
    make_own(group).save({place: Checkpoint(2**60 - 1, ranges)})
    assert make_own(group).entries() == {place: FileEntry(2**60 - 1, ranges)}


@pytest.mark.parametrize("make_own", OWN, indirect=True)
def test_an_identity_is_of_one_worker_at_a_time(make_own: MakeOwn) -> None:
    first = make_own("one", "replica-0")
    first.open()
    first.open()
    second = make_own("one", "replica-0")
    with pytest.raises(StoreAway, match=r"another worker with group.instance.id replica-0 of group one uses"):
        second.open()
    others = [make_own("one", "replica-1"), make_own("other", "replica-0"), make_own("one")]
    for other in others:
        other.open()
    first.save({SHOP: Checkpoint(5)})
    first.close()
    second.open()
    second.save({SHOP: Checkpoint(6)})
    if isinstance(first, SqlStore):  # its next use would take the identity again
        with pytest.raises(StoreAway, match="another worker"):
            first.save({SHOP: Checkpoint(4)})
    assert loaded(second, [SHOP]) == {SHOP: Checkpoint(6)}


HOLD = """
import sys, time
from pathlib import Path
from sqlalchemy.engine import make_url
from offsets.stores.file import FileStore
from offsets.stores.sql import SqlStore
where, group, identity = sys.argv[1:]
url = make_url(where) if "://" in where else None
kind = FileStore if url is None else SqlStore
store = kind(Path(where) if url is None else url, group, identity=identity)
store.open()
print("held", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("make_own", OWN, indirect=True)
def test_the_lock_of_an_identity_dies_with_its_process(make_own: MakeOwn, tmp_path: Path) -> None:
    store = make_own("one", "replica-0")
    if isinstance(store, SqlStore):
        where = store._engine.url.render_as_string(hide_password=False)
    else:
        where = str(tmp_path / "state")
    command = [sys.executable, "-c", HOLD, where, "one", "replica-0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreAway, match="another worker"):
            store.open()
        holder.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while True:  # a database notices the end of a session in its own time
        try:
            store.open()
            break
        except StoreAway:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    store.save({SHOP: Checkpoint(5)})
    assert loaded(store, [SHOP]) == {SHOP: Checkpoint(5)}
