"""What happens in the lanes when partitions leave."""

from __future__ import annotations

import threading
import time

import pytest
from building import Clock, assignment, chunk, delivery, record, unit
from lane_building import BIG, Source, closed, lanes_of, offsets, taken

from worker.configuration import LanesRule
from worker.lanes.lanes import Lanes


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_withdrawing_forgets_what_is_queued_of_a_partition_and_keeps_the_rest(clock: Clock) -> None:
    lanes = lanes_of(clock)
    leaving, staying = Source(lanes, assignment(0)), Source(lanes, assignment(1))
    table = unit("a")
    for source in (leaving, staying, leaving):
        source.offer((table, 2))
    assert lanes.withdraw([table], closed(leaving.assignment), 0.0) == []
    assert lanes.lanes[0].records == 2
    work = taken(lanes, 0)
    assert {piece.assignment for piece in work.chunks} == {staying.assignment}


def test_withdrawing_tells_which_tables_still_run_of_the_partition(clock: Clock) -> None:
    lanes = lanes_of(clock)
    leaving, staying = Source(lanes, assignment(0)), Source(lanes, assignment(1))
    here, there = unit("here"), unit("there")
    leaving.offer((here, 2))
    staying.offer((there, 2))
    works = [taken(lanes, 0), taken(lanes, 1)]
    assert lanes.withdraw([here, there], closed(leaving.assignment), 0.0) == ["shop.here"]
    for number, work in enumerate(works):
        lanes.finish(number, work)
    assert [lane.records for lane in lanes.lanes] == [0, 0]


def test_withdrawing_waits_until_running_batches_end() -> None:
    lanes = Lanes(LanesRule(count=1, max_records=BIG, max_bytes=BIG, work_stealing=True), time.monotonic)
    source = Source(lanes)
    table = unit("a")
    source.offer((table, 1))
    work = taken(lanes, 0)
    left: list[list[str]] = []
    gone = closed(source.assignment)
    waiter = threading.Thread(target=lambda: left.append(lanes.withdraw([table], gone, 30.0)))
    waiter.start()
    lanes.finish(0, work)
    waiter.join(5)
    assert left == [[]]


def test_a_batch_given_back_after_its_partition_left_never_runs_again(clock: Clock) -> None:
    lanes = lanes_of(clock)
    leaving, staying = Source(lanes, assignment(0)), Source(lanes, assignment(1))
    table = unit("a")
    leaving.offer((table, 2))
    staying.offer((table, 2))
    work = taken(lanes, 0)
    lanes.withdraw([table], closed(leaving.assignment), 0.0)
    lanes.give_back(0, work, delay=5.0, error="too late")
    assert lanes.lanes[0].records == 2
    assert {piece.assignment for piece in taken(lanes, 0).chunks} == {staying.assignment}


def test_what_a_running_batch_puts_back_of_a_partition_that_left_is_gone(clock: Clock) -> None:
    lanes = lanes_of(clock)
    staying, leaving = Source(lanes, assignment(1)), Source(lanes, assignment(0))
    table = unit("a")
    staying.offer((table, 2))
    leaving.offer((table, 2))
    staying.offer((table, 1))
    work = taken(lanes, 0)
    lanes.withdraw([table], closed(leaving.assignment), 0.0)
    first = lanes.shorten(0, work, 1)
    assert offsets(first) == [0]
    assert lanes.lanes[0].records == 3
    lanes.finish(0, first)
    rest = taken(lanes, 0)
    assert offsets(rest) == [1, 2]
    assert {piece.assignment for piece in rest.chunks} == {staying.assignment}
    lanes.finish(0, rest)
    assert lanes.lanes[0].records == lanes.lanes[0].bytes == 0


def test_it_is_no_dead_end_when_what_had_no_room_left_with_its_partition(clock: Clock) -> None:
    """The commit that follows takes as long as the broker does: nothing is offered anew until then."""
    lanes = lanes_of(clock, 1, max_records=4)
    leaving, staying = Source(lanes, assignment(0)), Source(lanes, assignment(1))
    bad, other = unit("bad"), unit("other")
    staying.offer((bad, 3))
    lanes.halt(0, taken(lanes, 0), "it cannot be")
    assert not leaving.offer((other, 2))
    assert lanes.seen.dead_end()
    lanes.withdraw([bad, other], closed(leaving.assignment), 0.0)
    assert not lanes.seen.dead_end()
    assert not lanes.seen.pressed


def test_what_stays_of_a_delivery_that_had_no_room_is_no_dead_end_if_it_fits(clock: Clock) -> None:
    lanes = lanes_of(clock, 1, max_records=4)
    leaving, staying = assignment(0), assignment(1)
    bad, other = unit("bad"), unit("other")
    Source(lanes, staying).offer((bad, 3))
    lanes.halt(0, taken(lanes, 0), "it cannot be")
    records = [[record(0), record(1)], [record(3)]]
    pieces = [chunk(of, made) for of, made in zip((leaving, staying), records, strict=True)]
    assert not lanes.offer(delivery(*((other, piece) for piece in pieces)))
    assert lanes.seen.dead_end()
    lanes.withdraw([bad, other], closed(leaving), 0.0)
    assert lanes.seen.pressed
    assert not lanes.seen.dead_end()
    assert lanes.wait_for_space(0.0)
