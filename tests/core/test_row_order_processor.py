"""Processors on tables in row order: rows reach handlers by shard, failures stay in theirs."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable

import pytest
from building import Scripted, chunk, ddl, delivery, record
from processing import BAD, NOW, Stage
from row_building import key_change, no_rows, row_unit, rows
from structlog.testing import capture_logs

from handlers import Batch
from handlers.rows import SHARDS, shard_of
from offsets.types import Checkpoint
from worker.formats.interface import Record
from worker.units.unit import Unit, UnitState

QUIESCENT = (UnitState.IDLE, UnitState.HALTED, UnitState.WAITING_FOR_OTHERS)


def offer(stage: Stage, to: Unit, *records: Record, alone: bool = False) -> None:
    assert stage.lanes.offer(delivery((to, chunk(stage.partition, list(records), alone=alone))))


def run(stage: Stage, *units: Unit) -> None:
    """Until nothing moves any more, in no shard."""

    def quiescent() -> bool:
        with stage.lanes.lock:
            return all(member.state in QUIESCENT for each in units for member in each.members())

    stage.run(until=quiescent)


def finished(of: Unit) -> int:
    assert of.shards is not None
    return of.finished_records + of.shards.finished_records


def failing(*bad: int) -> Callable[[Batch], None]:
    """For the rows with these ids."""

    def script(batch: Batch) -> None:
        for change in batch.changes:
            if change.after is not None and change.after["id"] in bad:
                raise ValueError(f"row {change.after['id']}")

    return script


def test_every_row_reaches_its_handler_once_and_each_rows_changes_in_order() -> None:
    stage, handler = Stage(lanes=4), Scripted()
    table = row_unit("orders", handler, batch={"max_records": 7})
    for poll in range(20):
        offer(stage, table, *(rows(poll * 50 + n, n % 40, n % 7) for n in range(50)))
    run(stage, table)
    order: dict[int, list[int]] = defaultdict(list)
    for batch in handler.batches:
        for change in batch.changes:
            assert change.after is not None
            assert shard_of(change) == batch.shard
            order[change.after["id"]].append(change.offset)
    assert all(offsets == sorted(offsets) for offsets in order.values())
    assert sum(map(len, order.values())) == 2000
    assert stage.checkpoint() == Checkpoint(1000)
    assert finished(table) == 1000
    assert stage.lanes.seen.queued == 0


def test_one_hot_table_keeps_all_processors_busy() -> None:
    inside = threading.Barrier(4, timeout=10)
    stage = Stage(lanes=4)
    table = row_unit("orders", Scripted(lambda _: inside.wait()))
    offer(stage, table, *(rows(n, key) for n, key in enumerate([1, 2, 3, 4])))
    run(stage, table)
    assert stage.checkpoint() == Checkpoint(4)


@pytest.mark.parametrize("handlers", [1, 2])
def test_a_row_that_fails_for_good_halts_its_shard_alone(handlers: int) -> None:
    stage = Stage(lanes=2)
    objects = [Scripted(failing(3)) if n == 0 else Scripted() for n in range(handlers)]
    table = row_unit("orders", *objects, retry=NOW | {"max_attempts": 1})
    offer(stage, table, *(rows(n, n) for n in range(8)), rows(8, 3), rows(9, 5))
    with capture_logs() as logs:
        run(stage, table)
    assert table.halted
    assert table.state is UnitState.IDLE
    assert [log["position"] for log in logs if log["event"] == "table_halted"] == [
        "cdc.shop[0] offset 3 row 0"
    ]
    checkpoint = stage.checkpoint()
    assert checkpoint is not None
    assert checkpoint.offset == 3
    assert stage.partition.tracker.unfinished == 2
    assert finished(table) == 8


def test_a_row_that_is_skipped_leaves_the_rest_of_its_record_handled() -> None:
    stage, handler = Stage(lanes=2), Scripted(failing(3))
    table = row_unit("orders", handler, retry=NOW | {"max_attempts": 1}, on_failure="skip")
    offer(stage, table, rows(0, 1, 3, 2, 3), rows(1, 3))
    run(stage, table)
    assert stage.checkpoint() == Checkpoint(2)
    assert finished(table) == 2
    assert {c.after["id"] for b in handler.batches for c in b.changes if c.after} == {1, 2, 3}


def test_handlers_that_never_look_at_the_rows_get_them_by_shard_too() -> None:
    stage, handler = Stage(lanes=2), Scripted()
    table = row_unit("orders", handler)
    offer(stage, table, *(rows(n, n) for n in range(300)), no_rows(300))
    run(stage, table)
    assert sum(batch.records for batch in handler.batches) == 300
    assert {batch.shard for batch in handler.batches} == set(range(SHARDS))
    assert stage.checkpoint() == Checkpoint(301)


def test_an_undecodable_record_halts_the_table_after_the_rows_before_it() -> None:
    stage, handler = Stage(), Scripted()
    table = row_unit("orders", handler)
    offer(stage, table, rows(0, 1), rows(1, 2), record(2, value=BAD), rows(3, 1))
    run(stage, table)
    assert table.state is UnitState.HALTED
    assert sorted(c.offset for b in handler.batches for c in b.changes) == [0, 1]
    assert stage.checkpoint() == Checkpoint(2)


def test_undecodable_records_are_passed_over_where_the_rule_says_skip() -> None:
    stage, handler = Stage(on_undecodable="skip"), Scripted()
    table = row_unit("orders", handler)
    offer(stage, table, rows(0, 1), record(1, value=BAD), rows(2, 2))
    run(stage, table)
    assert stage.checkpoint() == Checkpoint(3)
    assert finished(table) == 3


def test_a_barrier_that_fails_is_tried_again_alone_and_everything_waits_for_it() -> None:
    stage, left = Stage(lanes=3), [2]

    def script(batch: Batch) -> None:
        if batch.shard is None and left[0]:
            left[0] -= 1
            raise ValueError("not yet")

    handler = Scripted(script)
    table = row_unit("orders", handler, retry=NOW)
    offer(stage, table, rows(0, 1), rows(1, 2), key_change(2, 1, 3), rows(3, 3), rows(4, 2))
    offer(stage, table, ddl(5), alone=True)
    run(stage, table)
    calls = [(batch.shard is None, [c.offset for c in batch.changes]) for batch in handler.batches]
    assert sorted(calls[:2]) == [(False, [0]), (False, [1])]
    assert calls[2:5] == [(True, [2, 2])] * 3
    assert sorted(calls[5:7]) == [(False, [3]), (False, [4])]
    assert calls[7:] == [(True, [5])]
    assert stage.checkpoint() == Checkpoint(6)


def test_the_workers_stop_gives_rows_back_to_their_shards() -> None:
    stage, handler = Stage(), Scripted()
    table = row_unit("orders", handler)
    offer(stage, table, *(rows(n, n) for n in range(3)))
    for processor in stage.processors:
        processor.call_off()
    stage.run(until=lambda: True)
    assert handler.batches == []
    assert stage.partition.tracker.unfinished == 3
