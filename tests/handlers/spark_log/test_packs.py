"""One worker's packs, and what others find of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from log_lab import MemoryFiles
from pack_lab import Killed, Lake, Worker, row

from handlers import TargetUnavailable
from handlers.spark.log.pack_file import Index, PackFolder, StreamEnded, encoded, read_index
from handlers.spark.log.segment_file import BrokenLog

STREAM = "0" * 32


def lake_with_packs(mode: str = "changelog") -> tuple[Lake, Worker]:
    """Row 0 is in a segment, 1 and 2 are in two packs."""
    lake = Lake(mode)
    worker = Worker(lake)
    for offset in range(3):
        worker.take_and_put("orders", row(offset, key=offset))
    return lake, worker


def packs(lake: Lake) -> list[str]:
    shared = "/lake/_binlane/_shared"
    streams = [entry.name for entry in lake.files.list(shared)]
    return [each.name for stream in streams for each in lake.files.list(f"{shared}/{stream}") if each.size]


def number_of_segments(lake: Lake, table: str = "orders") -> int:
    names = [entry.name for entry in lake.files.list(f"/lake/_binlane/shop/{table}/pending")]
    return sum(name.endswith(".parquet") for name in names)


def test_a_batch_is_done_when_its_pack_is_put_and_not_before() -> None:
    lake, worker = lake_with_packs()
    assert not worker.take("orders", [row(3, key=3)])
    assert not worker.take("orders", [row(3, key=3)])
    worker.put()
    assert worker.take("orders", [row(3, key=3)])
    assert (number_of_segments(lake), len(packs(lake))) == (1, 3)


def test_batches_of_many_tables_are_one_pack() -> None:
    lake = Lake("replica")
    worker = Worker(lake)
    tables = [f"t{number}" for number in range(40)]
    for table in tables:
        worker.take_and_put(table, row(0, key=1))
    puts = len(lake.files.first_put)
    assert not any(worker.take(table, [row(1, key=1)]) for table in tables)
    worker.put()
    assert all(worker.take(table, [row(1, key=1)]) for table in tables)
    assert len(lake.files.first_put) == puts + 1


def test_a_segment_whose_answer_was_lost_leaves_nothing_to_be_put_behind_the_one_before() -> None:
    lake, worker = lake_with_packs()
    worker.files.fault, worker.files.left = "lose answer", 1
    with pytest.raises(RuntimeError, match="connection was reset"):
        worker.sink("orders").merge()
    worker.take_and_put("orders", row(3, key=3))
    last = Worker(lake)
    last.take_and_put("orders", row(4, key=4))
    last.sink("orders").merge()
    assert lake.offsets["orders"] == [0, 1, 2, 3, 4]


def test_what_was_found_in_a_stream_is_needed_until_it_is_in_a_segment() -> None:
    lake, _ = lake_with_packs()
    other, last = Worker(lake), Worker(lake)
    other.sink("orders").load()
    other.sink("orders").let_go()
    other.sink("orders").load()
    last.take_and_put("orders", row(3, key=3))
    last.sink("orders").merge()
    assert lake.offsets["orders"] == [0, 1, 2, 3]


def test_a_worker_that_was_frozen_before_its_put_has_done_nothing_when_others_have_gone_on() -> None:
    lake = Lake("changelog")
    other = Worker(lake)
    frozen = Worker(lake, lambda: other.take_and_put("orders", row(1, key=1), row(2, key=2)))
    frozen.take_and_put("orders", row(0, key=0))
    assert not frozen.take("orders", [row(1, key=1)])
    frozen.files.fault, frozen.files.left = "freeze before", 1
    frozen.put()
    assert frozen.take("orders", [row(1, key=1)])  # for the other has done it
    frozen.take_and_put("orders", row(3, key=3))
    frozen.sink("orders").merge()
    assert lake.offsets["orders"] == [0, 1, 2, 3]


def test_rows_under_way_are_brought_into_a_segment_that_is_put_meanwhile() -> None:
    lake, worker = lake_with_packs()
    assert not worker.take("orders", [row(3, key=3)])
    worker.sink("orders").merge()
    assert lake.offsets["orders"] == [0, 1, 2, 3]
    worker.files.fault, worker.files.left = "die before", 1
    with pytest.raises(Killed):
        worker.put()
    last = Worker(lake)
    last.take_and_put("orders", row(3, key=3), row(4, key=4))
    last.sink("orders").merge()
    assert lake.offsets["orders"] == [0, 1, 2, 3, 4]


def test_of_a_replica_a_segment_of_packs_has_the_last_row_of_each_key() -> None:
    lake = Lake("replica")
    worker = Worker(lake)
    for offset in range(6):
        worker.take_and_put("orders", row(offset, key=offset % 2))
    worker.sink("orders").merge()
    assert lake.rows["orders"] == {0: "at 4", 1: "at 5"}
    assert number_of_segments(lake) == 2


def test_packs_are_removed_when_their_rows_are_in_segments_also_those_of_a_worker_that_is_gone() -> None:
    lake, worker = lake_with_packs()
    worker.tidy("orders")
    assert len(packs(lake)) == 1, "the last one tells where the stream goes on"
    worker.take_and_put("orders", row(3, key=3))
    last = Worker(lake)
    last.tidy("orders")
    assert packs(lake), "it did not look what is in the log"
    last.sink("orders").load()
    last.tidy("orders")
    assert lake.offsets["orders"] == [0, 1, 2, 3]
    assert packs(lake) == []


def test_a_number_that_was_used_and_removed_is_not_put_again() -> None:
    files = MemoryFiles()
    folder = PackFolder(files, "/lake/_binlane", STREAM)  # type: ignore[arg-type]
    for number in range(1, 4):
        folder.put(number, encoded(Index(STREAM, number), ()))
    folder.remove([1, 2, 3])
    with pytest.raises(StreamEnded):
        folder.put(2, encoded(Index(STREAM, 2), ()))
    assert folder.found() == {}


def test_a_stream_that_lacks_a_pack_holds_its_table_back_and_says_which() -> None:
    lake, _ = lake_with_packs()
    [stream] = [entry.name for entry in lake.files.list("/lake/_binlane/_shared")]
    lake.files.delete(f"/lake/_binlane/_shared/{stream}/{1:020d}.pack")
    with pytest.raises(TargetUnavailable, match=f"_shared/{stream} lacks a pack with rows of shop/orders"):
        Worker(lake).take("orders", [row(3, key=3)])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[:-20], "is not a whole pack"),
        (lambda data: b"", "is not a whole pack"),
        (lambda data: data[:-13] + b"\7" + data[-12:], "has version 7 of packs, .* run the release"),
        (lambda data: data[:2] + b"\xff" + data[3:], "is not a whole pack"),
    ],
)
def test_a_pack_that_cannot_be_read_is_told(damage: Callable[[bytes], bytes], said: str) -> None:
    files = MemoryFiles()
    folder = PackFolder(files, "/lake/_binlane", STREAM)  # type: ignore[arg-type]
    folder.put(1, damage(encoded(Index(STREAM, 1), ())))
    with pytest.raises(BrokenLog, match=said):
        read_index(files, folder.place(1), STREAM, 1)  # type: ignore[arg-type]
