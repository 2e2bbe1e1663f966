"""What no further worker helps with: tables that stand still, and what waits for room behind them."""

from __future__ import annotations

import pytest
from building import Clock, unit
from lane_building import Source, lanes_of, taken
from row_building import Routed, rows, statement
from row_stepping import begun, handled
from table_stage import TableStage

from worker.lanes.lanes import Lanes
from worker.lanes.snapshot import snapshot
from worker.units.unit import Unit


def standing(lanes: Lanes, *units: Unit, shown: int = 1_000) -> tuple[int, bool]:
    view = snapshot(lanes.seen, units, shown)
    return view.standing.records, view.held_up


def waits_for_target(lanes: Lanes, lane: int = 0) -> None:
    work = taken(lanes, lane)
    work.unit.blocked = True
    lanes.give_back(lane, work, delay=1.0, error="its target is down")


def test_a_delivery_is_held_up_by_a_blocked_table_long_before_the_lane_is_full() -> None:
    """Deliveries are taken whole: a lane may stay at three quarters of its bound for ever."""
    lanes = lanes_of(Clock(), 1, max_records=10_000)
    away, source = unit("away", batch={"max_records": 1_000}), Source(lanes)
    assert source.offer((away, 7_500))
    waits_for_target(lanes)
    assert standing(lanes, away) == (7_500, False), "everything that came has room"
    assert not source.offer((away, 5_000))
    assert standing(lanes, away) == (7_500, True)


def test_the_batch_that_tries_whether_the_target_is_back_counts_too() -> None:
    clock = Clock()
    lanes = lanes_of(clock, 1, max_records=10)
    away, source = unit("away", batch={"max_records": 4}), Source(lanes)
    source.offer((away, 8))
    waits_for_target(lanes)
    assert not source.offer((away, 5))
    clock.now += 1.0
    assert taken(lanes, 0).unit is away
    assert standing(lanes, away) == (8, True)


def test_a_delivery_that_waits_for_tables_that_go_on_is_not_held_up() -> None:
    lanes = lanes_of(Clock(), 1, max_records=10)
    away, works, source = unit("away"), unit("works"), Source(lanes)
    source.offer((away, 3), (works, 6))
    waits_for_target(lanes)
    assert not source.offer((works, 5))
    assert standing(lanes, away, works) == (3, False), "it fits when the other table is through"
    assert not source.offer((works, 8))
    assert standing(lanes, away, works) == (3, True), "it never does"


def test_bytes_hold_up_whatever_the_lane() -> None:
    lanes = lanes_of(Clock(), 2, max_bytes=3_000)
    away, other, source = unit("away", lane=0), unit("other", lane=1), Source(lanes)
    assert source.offer((away, 5))
    waits_for_target(lanes)
    assert not source.offer((other, 5))
    assert standing(lanes, away, other) == (5, True)


def test_a_table_stands_still_from_its_first_failure_until_its_batch_succeeds() -> None:
    clock = Clock()
    lanes = lanes_of(clock, 1)
    fails, source = unit("fails", batch={"max_records": 2}), Source(lanes)
    source.offer((fails, 10))
    assert standing(lanes, fails) == (0, False)
    lanes.give_back(0, taken(lanes, 0), delay=10.0, error="no such column")
    assert standing(lanes, fails) == (10, False)
    assert standing(lanes, fails, shown=0) == (10, False), "shown or not"
    clock.now += 10.0
    again = taken(lanes, 0)
    assert standing(lanes, fails) == (10, False), "it is tried once more"
    lanes.finish(0, again)
    assert standing(lanes, fails) == (0, False)


@pytest.mark.parametrize("order_by", ["table", "row"])
def test_tables_that_wait_for_a_blocked_one_with_a_statement_stand_still_with_it(order_by: str) -> None:
    routed = Routed({"match": "shop.?"}, order_by=order_by)
    lanes, of = lanes_of(Clock(), 3), routed.partitions[0]
    assert lanes.offer(routed.poll((of, [rows(0, 1, table="b")])))
    lanes.halt(0, begun(lanes), "for good")
    polled = [
        statement(1, "RENAME TABLE a TO b", "a"),
        *(rows(n, n, table="abc"[n % 3]) for n in range(2, 8)),
    ]
    assert lanes.offer(routed.poll((of, polled)))
    units = [routed.unit(name) for name in "abc"]
    assert [offset for batch in handled(lanes) for offset in batch] == [2, 5], (
        "of the one that has nothing to do with it"
    )
    assert standing(lanes, *units) == (6, False)


def test_a_record_whose_rows_several_blocked_shards_have_counts_once() -> None:
    stage = TableStage(order_by="row")
    stage.poll(rows(0, *range(8)))
    for _ in range(2):
        work = stage.take()
        assert work is not None
        stage.lanes.halt(0, work, "for good")
    assert standing(stage.lanes, *stage.book.all()) == (1, False)
