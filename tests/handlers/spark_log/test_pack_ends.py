"""Packs whose end nobody foresaw: what is acknowledged stays, and nobody waits for what does not come."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import msgspec
import pytest
from pack_lab import Fault, Lake, Worker, row

from handlers import Batch, Change
from handlers.failures import AskAgain
from handlers.spark.log.pack_writer import PackWriter


@pytest.fixture
def lake() -> Lake:
    return Lake("changelog")


def _began(worker: Worker) -> None:
    """One change in a segment, and one behind it in a pack."""
    worker.take_and_put("orders", row(0, 1))
    worker.take_and_put("orders", row(1, 1))


def test_nothing_is_added_behind_a_segment_whose_next_may_still_arrive(lake: Lake) -> None:
    worker = Worker(lake)
    _began(worker)
    sink = worker.sink("orders")
    worker.files.fault, worker.files.left = "arrive late", 1
    with suppress(Exception):
        sink.merge()
    sink.let_go()  # the partition leaves, and comes back
    worker.take_and_put("orders", row(2, 1))
    worker.files.arrive()
    worker.take_and_put("orders", row(3, 1))
    sink.merge()
    assert lake.offsets["orders"] == [0, 1, 2, 3]


def test_what_is_in_packs_is_merged_though_the_last_one_failed_and_nobody_asks_for_its_batch(
    lake: Lake,
) -> None:
    worker = Worker(lake)
    _began(worker)
    worker.take("orders", [row(2, 1)])  # and then its table halts: another of its handlers cannot go on
    worker.files.fault, worker.files.left = "refuse", 1
    worker.put()
    sink = worker.sink("orders")
    sink.merge()
    assert lake.offsets["orders"] == [0, 1]
    assert not sink.waiting.rows, "it would be due again at once, for ever"


def test_who_finds_its_pack_removed_looks_whether_another_worker_has_brought_it_in(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("handlers.spark.log.pack_writer._IN_MEMORY", 0)
    idle, other = Worker(lake), Worker(lake)
    _began(idle)
    idle.take_and_put("items", row(0, 1))
    idle.take("items", [row(1, 1)])
    other.sink("orders").load()
    other.tidy("orders")
    idle.put()  # and finds that its stream is over
    idle.take_and_put("orders", row(2, 1))
    idle.sink("orders").merge()
    assert lake.offsets["orders"] == [0, 1, 2]


def test_a_batch_of_a_topic_that_was_made_anew_is_not_taken_for_the_one_that_had_its_offsets(
    lake: Lake,
) -> None:
    worker = Worker(lake)

    def batch(change: Change, topic_id: str) -> Batch:
        return Batch("shop.orders", [change], database="shop", name="orders", topic_ids={"cdc": topic_id})

    sink = worker.sink("orders")
    sink.take(batch(row(5, 1), "former"))
    with pytest.raises(AskAgain):
        sink.take(batch(row(6, 1), "former"))
    worker.put()  # and nobody asks: the partition has left
    with pytest.raises(AskAgain):
        sink.take(batch(row(6, 2), "new"))
    sink.merge()
    assert lake.offsets["orders"] == [5, 6, 6]


def test_what_was_read_of_a_stream_is_forgotten_with_it_though_others_brought_in_its_last_rows(
    lake: Lake,
) -> None:
    last = Worker(lake)
    for first in (0, 3):
        before = Worker(lake)
        for table in ("orders", "items"):
            for offset in range(first, first + 3):
                before.take_and_put(table, row(offset, 1))
        last.sink("orders").load()
        last.tidy("orders")
    other = Worker(lake)
    other.sink("items").load()
    other.tidy("items")
    assert any(last.packs._ended.values())
    last.remove()
    last.remove()
    assert not last.packs._ended


def test_packs_are_put_while_old_ones_are_looked_through(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("handlers.spark.log.pack_writer._REMOVE_EVERY", 0.01)
    looks, goes_on = threading.Event(), threading.Event()

    def look_through() -> None:
        looks.set()
        goes_on.wait(10)

    worker = Worker(lake)
    worker.packs.writer = writer = PackWriter(
        worker.world.files, worker.packs.logs, every=0.01, look_through=look_through
    )
    writer.start()
    try:
        assert worker.take("orders", [row(0, 1)])
        assert looks.wait(10)
        end = time.monotonic() + 5
        while not worker.take("orders", [row(1, 1)]):
            assert time.monotonic() < end, "a batch waits"
            time.sleep(0.01)
    finally:
        goes_on.set()
        writer.end()
        assert writer.ended(10)


def test_two_workers_that_both_have_rows_of_a_table_do_not_go_on_ending_each_others_streams(
    lake: Lake,
) -> None:
    workers = (Worker(lake), Worker(lake))
    for offset in range(8):
        for partition, worker in enumerate(workers):
            change = msgspec.structs.replace(row(offset, 1), partition=partition)
            worker.take_and_put("orders", change)
            worker.take_and_put(f"of_{partition}", change)
    streams = lake.files.list("/lake/_binlane/_shared")
    assert len(streams) <= 4
    workers[0].sink("orders").load()
    workers[0].sink("orders").merge()
    assert len(lake.offsets["orders"]) == 16


@pytest.mark.parametrize("requests", range(1, 9))
def test_who_reads_a_log_that_goes_on_meanwhile_misses_nothing_behind_its_new_end(
    lake: Lake, requests: int
) -> None:
    before = Worker(lake)
    _began(before)

    def meanwhile() -> None:
        before.sink("orders").merge()
        before.take_and_put("orders", row(2, 1))

    after = Worker(lake, meanwhile)
    after.files.fault, after.files.left = "freeze before", requests
    after.sink("orders").load()
    after.take_and_put("orders", row(3, 1))
    after.sink("orders").merge()
    assert lake.offsets["orders"] == [0, 1, 2, 3]


@pytest.mark.parametrize("fault", ["freeze before", "freeze after"])
def test_nothing_counts_as_done_that_a_frozen_worker_puts_into_a_removed_stream(
    lake: Lake, fault: Fault
) -> None:
    third = Worker(lake)
    frozen = Worker(lake, lambda: third.take_and_put("orders", row(1, 1)))
    frozen.take_and_put("orders", row(0, 1))
    frozen.take_and_put("items", row(0, 1))
    frozen.take_and_put("items", row(1, 1))
    other = Worker(lake)
    other.sink("items").load()
    other.tidy("items")
    frozen.take("orders", [row(1, 1)])
    # Between its put and its look at which packs were removed, or right behind that look.
    frozen.files.fault, frozen.files.left = fault, 2
    frozen.put()
    third.take_and_put("orders", row(2, 1))
    third.sink("orders").merge()
    assert lake.offsets["orders"] == [0, 1, 2]
