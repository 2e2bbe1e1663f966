"""Bounds and rules that change while tables gather or wait: nobody goes on waiting for what cannot come."""

from __future__ import annotations

from typing import Any

import pytest
from building import Clock, assignment, chunk, configuration, delivery, record, unit
from lane_building import BIG, Source, lanes_of, offsets, taken
from row_building import Routed, row_unit, rows, statement
from row_stepping import decoded, dispatched, done, offered
from stepping import SteppedProcessor

from worker.configuration import LanesRule
from worker.fetching.backpressure import Backlog
from worker.lanes.lanes import Lanes
from worker.units.chunk import RECORD_OVERHEAD
from worker.units.table import Table
from worker.units.unit import Unit, UnitState

SIZE = 100 + RECORD_OVERHEAD


@pytest.fixture
def clock() -> Clock:
    return Clock()


def resize(lanes: Lanes, *units: Unit, max_records: int = BIG, max_bytes: int = BIG) -> None:
    rule = LanesRule.model_validate(
        {"count": lanes.schedule.ready.count, "max_records": max_records, "max_bytes": max_bytes}
    )
    lanes.resize(rule, lambda each: each.lane, units)


def ruled(of: Unit, **batch: Any) -> Table:
    """The table by another rule."""
    return Table(
        of.table.database, of.table.name, configuration({"batch": batch}).tables[0], of.table.handlers
    )


@pytest.mark.parametrize("bounds", [{"max_records": 3}, {"max_bytes": 3 * SIZE}])
def test_who_gathers_for_more_than_smaller_lanes_hold_goes_on_at_once(
    clock: Clock, bounds: dict[str, int]
) -> None:
    lanes = lanes_of(clock, 1)
    table, less = (unit(name, batch={"max_wait": 60.0, "max_records": 9}) for name in "ab")
    sleeper = SteppedProcessor(lanes, 0, clock)
    Source(lanes).offer((table, 3), (less, 1))
    sleeper.step()
    assert sleeper.asleep
    resize(lanes, table, less, **bounds)
    assert less.state is UnitState.GATHERING
    assert not sleeper.asleep
    sleeper.step()
    assert sleeper.work is not None
    assert offsets(sleeper.work) == [0, 1, 2]
    lanes.stop()
    sleeper.close()


def test_nobody_waits_for_more_bytes_than_all_lanes_can_hold(clock: Clock) -> None:
    lanes = lanes_of(clock, max_bytes=4 * SIZE)
    table = unit("a", batch={"max_wait": 60.0, "max_bytes": 1000 * SIZE})
    source = Source(lanes)
    source.offer((table, 3))
    assert table.state is UnitState.GATHERING
    source.offer((table, 1))
    assert table.state is UnitState.READY
    assert offsets(taken(lanes, 0)) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "batch",
    [{}, {"max_wait": 1.0}, {"max_wait": 60.0, "max_records": 2}, {"max_wait": 60.0, "max_bytes": 2 * SIZE}],
)
def test_who_gathers_goes_on_at_once_when_the_new_rule_has_it_wait_no_longer(
    clock: Clock, batch: dict[str, Any]
) -> None:
    lanes = lanes_of(clock, 1)
    table = unit("a", batch={"max_wait": 60.0})
    sleeper = SteppedProcessor(lanes, 0, clock)
    Source(lanes).offer((table, 2))
    sleeper.step()
    clock.now += 1.0
    lanes.give_tables([(table, ruled(table, **batch))])
    assert not sleeper.asleep
    sleeper.step()
    assert sleeper.work is not None
    assert offsets(sleeper.work) == [0, 1]
    lanes.stop()
    sleeper.close()


@pytest.mark.parametrize("wait", [5.0, 100.0])
def test_who_gathers_does_so_as_long_as_the_new_rule_says_from_its_first_record_on(
    clock: Clock, wait: float
) -> None:
    lanes = lanes_of(clock, 1)
    table = unit("a", batch={"max_wait": 60.0})
    sleeper = SteppedProcessor(lanes, 0, clock)
    Source(lanes).offer((table, 1))
    sleeper.step()
    clock.now += 1.0
    lanes.give_tables([(table, ruled(table, max_wait=wait))])
    clock.now += wait - 1.5
    sleeper.step()
    assert table.state is UnitState.GATHERING
    assert sleeper.asleep
    clock.now += 0.5
    assert not sleeper.asleep
    sleeper.step()
    assert sleeper.work is not None
    lanes.stop()
    sleeper.close()


def test_shards_go_on_at_once_when_the_new_rule_has_them_wait_no_longer(clock: Clock) -> None:
    lanes, table, of = lanes_of(clock), row_unit(batch={"max_wait": 60.0}), assignment()
    offered(lanes, table, rows(0, 1), of=of)
    dispatched(lanes)
    assert not lanes.schedule.ready
    lanes.give_tables([(table, ruled(table))])
    assert lanes.schedule.ready
    assert offsets(decoded(lanes)) == [0]


def test_rows_may_be_spread_at_once_when_there_is_room_for_more(clock: Clock) -> None:
    """What holds the room is halted, and tells nobody."""
    of, size = assignment(), len(rows(10, 3)) + RECORD_OVERHEAD
    lanes = lanes_of(clock, count=2, max_bytes=8 * 2 * size)
    table = row_unit(batch={"max_records": 2})
    offered(lanes, table, rows(10, 1), rows(11, 1), of=of)
    dispatched(lanes)
    lanes.halt(0, decoded(lanes), "it cannot be")
    offered(lanes, table, rows(12, 2), of=of)
    assert table.state is UnitState.WAITING_FOR_OTHERS
    resize(lanes, table, max_bytes=8 * 9 * size)
    assert table.state is UnitState.READY
    dispatched(lanes)
    work = decoded(lanes)
    assert offsets(work) == [12]
    done(lanes, work)


def test_rows_may_be_spread_at_once_when_the_tables_batches_may_be_larger(clock: Clock) -> None:
    of, size = assignment(), len(rows(10, 3)) + RECORD_OVERHEAD
    lanes = lanes_of(clock, count=2, max_bytes=8 * 2 * size)
    table = row_unit(batch={"max_records": 2})
    offered(lanes, table, rows(10, 1), rows(11, 1), of=of)
    dispatched(lanes)
    running = decoded(lanes)
    offered(lanes, table, rows(12, 2), of=of)
    assert table.state is UnitState.WAITING_FOR_OTHERS
    lanes.give_tables([(table, ruled(table, max_records=9))])
    assert table.state is UnitState.READY
    done(lanes, running)


def test_a_statements_place_takes_no_room_after_a_change_of_lanes_either(clock: Clock) -> None:
    lanes = lanes_of(clock, 1, max_records=2)
    routed = Routed({"match": "shop.?"}, order_by="table", lanes=1)
    of = routed.partitions[0]
    assert lanes.offer(routed.poll((of, [rows(n, n, table="b") for n in range(2)])))
    what = routed.poll((of, [statement(2, "RENAME TABLE a TO b", "a")]))
    places = delivery(*((to, piece) for to, piece in what.parts if not piece.messages))
    assert places.parts
    resize(lanes, max_records=1)
    places.recount()
    assert places.records == {}
    assert lanes.offer(places)


def test_what_is_held_gets_through_smaller_lanes_in_pieces_that_they_hold(clock: Clock) -> None:
    lanes = lanes_of(clock, 1, max_records=10)
    backlog = Backlog(lanes, 10, BIG)
    of, table = assignment(), unit("a")
    assert backlog.add(delivery((table, chunk(of, [record(0), record(1)]))))
    assert not backlog.add(delivery((table, chunk(of, [record(n) for n in range(2, 12)]))))
    resize(lanes, table, max_records=4)
    backlog.bound(4, BIG)
    found = []
    while table.state is UnitState.READY:
        assert not found or lanes.lanes[0].records <= 4
        work = taken(lanes, 0)
        found += offsets(work)
        lanes.finish(0, work)
        backlog.offer()
    assert found == list(range(12))
    assert not backlog


def test_what_is_held_is_offered_at_once_when_the_lanes_hold_more(clock: Clock) -> None:
    lanes = lanes_of(clock, 1, max_records=4)
    backlog = Backlog(lanes, 4, BIG)
    of, table = assignment(), unit("a")
    backlog.add(delivery((table, chunk(of, [record(n) for n in range(4)]))))
    running = taken(lanes, 0)
    assert not backlog.add(delivery((table, chunk(of, [record(n) for n in range(4, 12)]))))
    resize(lanes, table, max_records=20)
    backlog.bound(20, BIG)
    assert lanes.lanes[0].records == 12
    assert not backlog
    assert not lanes.seen.pressed
    assert offsets(running) == [0, 1, 2, 3]
    lanes.finish(0, running)
    assert offsets(taken(lanes, 0)) == list(range(4, 12))
