"""Which table is next while tables take turns, because their handlers take long."""

from __future__ import annotations

import math
import threading

import pytest
from building import Clock, unit
from lane_building import Source, lanes_of, taken

from worker.lanes.lanes import Lanes
from worker.units.unit import Turns, Unit

SECONDS = 0.01
"""A record, in the handlers of these tables: five are a turn."""


def run_next(lanes: Lanes, clock: Clock) -> tuple[Unit, int]:
    """Let the only lane's processor run its next batch to the end; whose it was, and how many records."""
    work = taken(lanes, 0)
    clock.now += SECONDS * work.records
    lanes.finish(0, work)
    return work.unit, work.records


@pytest.fixture
def clock() -> Clock:
    return Clock()


def taking_turns(clock: Clock, *records: int) -> tuple[Lanes, list[Unit]]:
    """A lane with tables that have so many records left, whose batches are known to take long."""
    lanes = lanes_of(clock, 1)
    source = Source(lanes)
    units = [unit(f"t{number}") for number in range(len(records))]
    for each in units:
        source.offer((each, 5))
        run_next(lanes, clock)
    source.offer(*zip(units, records, strict=True))
    return lanes, units


def test_who_waits_for_the_lock_behind_others_does_not_look_like_a_slow_handler(clock: Clock) -> None:
    """With many quick handlers and one interpreter most waiting is for one another: taken for the handlers'
    own time, it had tables cut to a record a turn, and left behind for good."""
    lanes, _ = taking_turns(clock, 10, 10)
    work = taken(lanes, 0)
    clock.now += SECONDS * work.records
    told = threading.Event()

    def read() -> float:
        now = clock.now
        told.set()
        return now

    lanes._clock = read
    with lanes.lock:
        processor = threading.Thread(target=lanes.take, args=(0, work))
        processor.start()
        told.wait(1)
        clock.now += 5.0
    processor.join()
    assert work.unit.turns.seconds(10) == pytest.approx(10 * SECONDS), "as of the batches before"


def test_of_few_tables_that_take_turns_the_one_with_the_most_to_do_is_next(clock: Clock) -> None:
    lanes, (small, large, middle) = taking_turns(clock, 10, 20, 15)
    turns = [run_next(lanes, clock) for _ in range(4)]
    # Of equals, that which has waited longer.
    assert turns == [(small, 5), (large, 5), (middle, 5), (large, 5)]


def test_a_table_with_little_to_do_waits_for_so_many_turns_only(clock: Clock) -> None:
    lanes, (small, large) = taking_turns(clock, 10, 1_000)
    turns = [run_next(lanes, clock)[0] for _ in range(7)]
    assert turns[0] is small
    assert small in turns[2:], "it waits until the other one has no more to do than itself"
    assert turns.count(large) == 5


def test_the_seconds_of_what_waits_go_by_the_mean_of_many_records() -> None:
    turns = Turns()
    assert turns.seconds(1) == math.inf
    turns.ran(10, 0.1, shortened=False)
    assert turns.seconds(100) == 1.0
    turns.ran(50, 1.0, shortened=False)  # half of what would tell all
    assert turns.seconds(100) == pytest.approx(1.5)
    turns.ran(1_000, 2.0, shortened=False)
    assert turns.seconds(100) == pytest.approx(0.2)
    turns.ran(10, 0.0, shortened=False)  # too quick to be waited for
    assert turns.seconds(100) == math.inf


def test_a_table_whose_batches_cost_the_same_whatever_they_hold_is_not_cut_short_again() -> None:
    turns = Turns()
    turns.ran(1_000, 0.4, shortened=False)
    batches = []
    while (most := turns.most_records(1_000)) is not None:
        turns.ran(most, 0.4, shortened=True)
        batches.append(most)
    assert 1 <= len(batches) <= 4


def test_a_few_records_that_take_longer_than_others_do_not_end_a_tables_turns() -> None:
    turns = Turns()
    turns.ran(1, 0.004, shortened=False)  # the first one to come was a quick one
    for seconds in (0.01, 0.02, 0.012):
        turns.ran(1, seconds, shortened=True)
    turns.ran(20, 0.2, shortened=False)
    for seconds in (0.16, 0.06, 0.06, 0.06):
        turns.ran(8, seconds, shortened=True)
    assert turns.most_records(100) is not None
