"""Lanes: what fits, what is taken when and by whom, and that nothing is lost, doubled or overtaken."""

from __future__ import annotations

import threading

import pytest
from building import Clock, unit
from lane_building import Source, lanes_of, offsets, taken

from worker.units.chunk import RECORD_OVERHEAD
from worker.units.unit import UnitState
from worker.units.work import Work


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_delivery_is_taken_whole_or_not_at_all(clock: Clock) -> None:
    lanes = lanes_of(clock, max_records=10)
    source = Source(lanes)
    full, empty = unit("a", lane=0), unit("b", lane=1)
    assert source.offer((full, 8))
    assert not source.offer((empty, 1), (full, 3))
    assert [lane.records for lane in lanes.lanes] == [8, 0]
    assert not empty.chunks
    assert lanes.seen.pressed


def test_another_lane_still_has_room_when_one_is_full(clock: Clock) -> None:
    lanes = lanes_of(clock, max_records=10)
    source = Source(lanes)
    assert source.offer((unit("a", lane=0), 10))
    assert source.offer((unit("b", lane=1), 10))


def test_running_records_count_until_they_are_finished(clock: Clock) -> None:
    lanes = lanes_of(clock, max_records=10)
    source = Source(lanes)
    table = unit("a")
    assert source.offer((table, 10))
    work = taken(lanes, 0)
    assert not source.offer((table, 1))
    assert not lanes.wait_for_space(0.0)
    lanes.finish(0, work)
    assert lanes.wait_for_space(0.0)
    assert lanes.lanes[0].records == lanes.lanes[0].bytes == 0


def test_bytes_of_all_lanes_count_together_with_each_records_own_weight(clock: Clock) -> None:
    lanes = lanes_of(clock, max_bytes=10 * (100 + RECORD_OVERHEAD))
    source = Source(lanes)
    assert source.offer((unit("a", lane=0), 5), (unit("b", lane=1), 5))
    assert not source.offer((unit("c", lane=1), 1), value=b"")


@pytest.mark.parametrize("bounds", [{"max_records": 3}, {"max_bytes": 50}])
def test_what_is_larger_than_a_bound_passes_alone(clock: Clock, bounds: dict[str, int]) -> None:
    lanes = lanes_of(clock, **bounds)
    source = Source(lanes)
    table = unit("a")
    assert source.offer((table, 4))
    assert not source.offer((table, 4))
    lanes.finish(0, taken(lanes, 0))
    assert source.offer((table, 4))


def test_a_batch_holds_at_most_the_tables_records_and_bytes(clock: Clock) -> None:
    lanes = lanes_of(clock)
    source = Source(lanes)
    few, light = unit("few", batch={"max_records": 3}), unit("light", batch={"max_bytes": 1000})
    source.offer((few, 2), (light, 2))
    source.offer((few, 5), (light, 2))
    batches: dict[str, list[int]] = {"few": [], "light": []}
    while any(lane.ready for lane in lanes.lanes):
        work = taken(lanes, 0)
        batches[work.unit.table.name].append(work.records)
        lanes.finish(0, work)
    assert batches == {"few": [3, 3, 1], "light": [2, 2]}  # 356 bytes a record


def test_one_record_larger_than_the_batch_bound_is_a_batch_of_its_own(clock: Clock) -> None:
    lanes = lanes_of(clock)
    table = unit("a", batch={"max_bytes": 10})
    Source(lanes).offer((table, 2))
    assert offsets(taken(lanes, 0)) == [0]


def test_ddl_is_alone_in_its_batch_and_in_its_place(clock: Clock) -> None:
    lanes = lanes_of(clock)
    source = Source(lanes)
    table = unit("a")
    source.offer((table, 2))
    source.offer_ddl(table)
    source.offer_ddl(table)
    source.offer((table, 2))
    batches = []
    while lanes.lanes[0].ready:
        work = taken(lanes, 0)
        batches.append(offsets(work))
        lanes.finish(0, work)
    assert batches == [[0, 1], [2], [3], [4, 5]]


def test_a_table_has_at_most_one_batch_running(clock: Clock) -> None:
    lanes = lanes_of(clock)
    source = Source(lanes)
    table = unit("a", batch={"max_records": 1})
    source.offer((table, 2))
    work = taken(lanes, 0)
    source.offer((table, 2))
    assert not any(lane.ready for lane in lanes.lanes)
    lanes.finish(0, work)
    assert [each.table.name for each in lanes.lanes[0].ready] == ["a"]


def test_an_idle_processor_takes_from_the_fullest_lane(clock: Clock) -> None:
    lanes = lanes_of(clock, count=3)
    Source(lanes).offer((unit("few", lane=0), 1), (unit("many", lane=1), 5))
    assert taken(lanes, 2).unit.table.name == "many"
    assert taken(lanes, 1).unit.table.name == "few"


def test_without_work_stealing_each_lane_keeps_its_own(clock: Clock) -> None:
    lanes = lanes_of(clock, work_stealing=False)
    Source(lanes).offer((unit("a", lane=0), 1))
    thief = threading.Thread(target=lambda: stolen.append(lanes.take(1)))
    stolen: list[Work | None] = []
    thief.start()
    assert taken(lanes, 0).unit.table.name == "a"
    lanes.stop()
    thief.join(5)
    assert stolen == [None]


def test_a_stolen_batch_still_counts_against_its_own_lane(clock: Clock) -> None:
    lanes = lanes_of(clock)
    Source(lanes).offer((unit("a", lane=0), 4))
    work = taken(lanes, 1)
    assert [lane.records for lane in lanes.lanes] == [4, 0]
    clock.now += 2.5
    lanes.finish(1, work)
    assert [lane.records for lane in lanes.lanes] == [0, 0]
    assert [lane.busy_seconds for lane in lanes.lanes] == [0, 2.5]


def test_a_failed_batch_is_kept_whole_until_its_delay_is_over(clock: Clock) -> None:
    lanes = lanes_of(clock)
    source = Source(lanes)
    table, other = unit("a"), unit("b")
    source.offer((table, 2), (other, 1))
    work = taken(lanes, 0)
    lanes.give_back(0, work, delay=1.0, error="it failed")
    source.offer((table, 2))
    assert (table.state, table.error) == (UnitState.BACKOFF, "it failed")
    assert taken(lanes, 0).unit is other  # the processor is free for others
    clock.now += 1.0
    assert taken(lanes, 1) is work
    lanes.finish(1, work)
    assert table.error is None
    assert offsets(taken(lanes, 1)) == [3, 4]


def test_what_a_batch_holds_is_released_once_and_when_it_is_done(clock: Clock) -> None:
    lanes = lanes_of(clock, max_records=4)
    source = Source(lanes)
    table, other = unit("a"), unit("b")
    source.offer((table, 4))
    for _ in range(2):
        work = taken(lanes, 0)
        lanes.give_back(0, work, delay=1.0, error="it failed")
        assert not source.offer((other, 1)), "a batch that is tried again still counts"
        clock.now += 1.0
    lanes.finish(0, taken(lanes, 0))
    assert source.offer((other, 4))
    assert (lanes.lanes[0].records, lanes.lanes[0].bytes) == (4, other.bytes)
    assert not source.offer((other, 1))


def test_the_end_of_an_earlier_wait_does_not_cut_a_delay_short(clock: Clock) -> None:
    lanes = lanes_of(clock)
    source = Source(lanes)
    table, other = unit("a", batch={"max_wait": 2.0, "max_records": 2}), unit("b")
    source.offer((table, 1))
    source.offer((table, 1))  # full, so it did not wait to the end
    lanes.give_back(0, taken(lanes, 0), delay=10.0)
    clock.now += 5.0
    source.offer((other, 1))
    assert taken(lanes, 0).unit is other
    assert table.state is UnitState.BACKOFF


def test_a_table_gathers_for_max_wait_from_its_first_record(clock: Clock) -> None:
    lanes = lanes_of(clock)
    source = Source(lanes)
    table = unit("a", batch={"max_wait": 2.0})
    source.offer((table, 1))
    clock.now += 1.5
    source.offer((table, 1))
    assert table.state is UnitState.GATHERING
    clock.now += 0.5
    assert offsets(taken(lanes, 0)) == [0, 1]


@pytest.mark.parametrize("limit", [{"max_records": 3}, {"max_bytes": 3 * 356}])
def test_a_full_batch_does_not_wait(clock: Clock, limit: dict[str, int]) -> None:
    lanes = lanes_of(clock)
    source = Source(lanes)
    table = unit("a", batch={"max_wait": 60.0} | limit)
    source.offer((table, 2))
    assert table.state is UnitState.GATHERING
    source.offer((table, 1))
    assert offsets(taken(lanes, 0)) == [0, 1, 2]


def test_nobody_waits_for_more_records_than_a_lane_can_hold(clock: Clock) -> None:
    lanes = lanes_of(clock, max_records=4)
    table = unit("a", batch={"max_wait": 60.0, "max_records": 1000})
    Source(lanes).offer((table, 4))
    assert table.state is UnitState.READY
    assert offsets(taken(lanes, 0)) == [0, 1, 2, 3]


def test_ddl_ends_the_wait(clock: Clock) -> None:
    lanes = lanes_of(clock)
    source = Source(lanes)
    table = unit("a", batch={"max_wait": 60.0})
    source.offer((table, 2))
    source.offer_ddl(table)
    assert offsets(taken(lanes, 0)) == [0, 1]


def test_under_pressure_nobody_waits_for_a_fuller_batch(clock: Clock) -> None:
    """Nothing more comes until there is room, so waiting could only end by time."""
    lanes = lanes_of(clock, max_records=4)
    source = Source(lanes)
    waiting, late = unit("a", lane=0, batch={"max_wait": 60.0}), unit("b", lane=1, batch={"max_wait": 60.0})
    source.offer((waiting, 3))
    assert not source.offer((unit("c", lane=0), 2))
    assert waiting.state is UnitState.READY
    assert taken(lanes, 0).unit is waiting
    assert lanes.seen.pressed
    lanes.forget_refused()
    source.offer((late, 1))
    assert late.state is UnitState.GATHERING


def test_a_halted_table_stops_only_itself_until_the_bounds_are_reached(clock: Clock) -> None:
    lanes = lanes_of(clock, max_records=4)
    source = Source(lanes)
    bad, good = unit("bad"), unit("good")
    source.offer((bad, 3), (good, 1))
    lanes.halt(0, taken(lanes, 0), "it cannot be")
    assert (bad.state, bad.error) == (UnitState.HALTED, "it cannot be")
    assert not source.offer((bad, 1), (good, 1))
    assert not lanes.seen.dead_end()  # good still runs
    lanes.finish(0, taken(lanes, 0))
    assert not source.offer((bad, 2))
    assert lanes.seen.dead_end()


def test_it_is_no_dead_end_when_what_is_held_only_has_to_be_offered_again(clock: Clock) -> None:
    """The fetcher may be busy with the broker meanwhile, for as long as that takes to answer."""
    lanes = lanes_of(clock, max_records=4)
    source = Source(lanes)
    table = unit("a")
    source.offer((table, 3))
    assert not source.offer((table, 2))
    lanes.finish(0, taken(lanes, 0))
    assert lanes.seen.pressed
    assert not lanes.seen.dead_end()


def test_a_shortened_batch_leaves_its_rest_in_front_of_the_queue(clock: Clock) -> None:
    lanes = lanes_of(clock)
    source = Source(lanes)
    table = unit("a")
    source.offer((table, 3))
    source.offer((table, 3))
    work = taken(lanes, 0)
    source.offer((table, 1))
    first = lanes.shorten(0, work, 4)
    assert offsets(first) == [0, 1, 2, 3]
    assert lanes.lanes[0].running is first
    lanes.finish(0, first)
    rest = taken(lanes, 0)
    assert offsets(rest) == [4, 5, 6]
    lanes.finish(0, rest)
    assert lanes.lanes[0].records == lanes.lanes[0].bytes == 0
