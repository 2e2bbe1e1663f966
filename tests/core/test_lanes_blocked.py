"""Tables that wait for a target: all look again as soon as it is back, and nobody else is disturbed."""

from __future__ import annotations

from building import Clock, unit
from lane_building import Source, lanes_of, taken

from worker.units.unit import UnitState


def test_who_waits_for_a_target_runs_again_at_once_when_it_is_back() -> None:
    clock = Clock()
    lanes = lanes_of(clock, 2)
    source = Source(lanes)
    waits, retries, gathers = unit("waits"), unit("retries"), unit("gathers", batch={"max_wait": 60.0})
    source.offer((waits, 1), (retries, 1), (gathers, 1))
    for table, blocked in ((waits, True), (retries, False)):
        work = taken(lanes, 0)
        assert work.unit is table
        table.blocked = blocked
        lanes.give_back(0, work, delay=60.0, error="not now")
    lanes.unblock()
    assert [each.state for each in (waits, retries, gathers)] == [
        UnitState.READY,
        UnitState.BACKOFF,
        UnitState.GATHERING,
    ]
    assert taken(lanes, 0).unit is waits


def test_who_was_let_run_early_is_not_let_run_again_when_its_time_comes() -> None:
    clock = Clock()
    lanes = lanes_of(clock, 2)
    source = Source(lanes)
    table, other = unit("orders"), unit("other")
    source.offer((table, 1))
    work = taken(lanes, 0)
    table.blocked = True
    lanes.give_back(0, work, delay=5.0, error="not now")
    lanes.unblock()
    lanes.finish(0, taken(lanes, 0))
    clock.now += 10
    source.offer((other, 1))
    assert taken(lanes, 0).unit is other
    assert table.state is UnitState.IDLE


def test_nobody_waiting_is_nothing_to_do() -> None:
    lanes = lanes_of(Clock(), 2)
    lanes.unblock()
    assert not lanes.seen.running()
