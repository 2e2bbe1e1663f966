"""Who is woken when: no work waits while a processor that may do it sleeps."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from building import Clock, assignment, chunk, delivery, record, unit
from lane_building import BIG, Source, closed, lanes_of, offsets
from stepping import Doing, SteppedProcessor

from worker.configuration import LanesRule
from worker.lanes.lanes import Lanes
from worker.units.work import Work


@contextmanager
def sleeping(lanes: Lanes, clock: Clock) -> Iterator[list[SteppedProcessor]]:
    """A processor for each lane, all asleep."""
    processors = [SteppedProcessor(lanes, lane.number, clock) for lane in lanes.lanes]
    for processor in processors:
        processor.step()
        assert processor.asleep
    yield processors
    lanes.stop()
    for processor in processors:
        processor.close()


def go_on(processors: list[SteppedProcessor]) -> list[Work]:
    """Those who were woken look for work until all have some or sleep. What each has."""
    while awake := [p for p in processors if p.doing is not Doing.WORKING and not p.asleep]:
        for processor in awake:
            processor.step()
    return [p.work for p in processors if p.work is not None]


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_each_table_that_comes_due_at_the_same_time_gets_a_processor(clock: Clock) -> None:
    lanes = lanes_of(clock, count=4)
    with sleeping(lanes, clock) as processors:
        source = Source(lanes)
        for name in "abc":
            source.offer((unit(name, lane=0, batch={"max_wait": 5.0}), 1))
        assert go_on(processors) == []
        clock.now += 5.0
        assert sorted(work.unit.table.name for work in go_on(processors)) == ["a", "b", "c"]


def test_without_work_stealing_the_home_lane_is_woken_when_its_table_comes_due(clock: Clock) -> None:
    lanes = lanes_of(clock, count=3, work_stealing=False)
    with sleeping(lanes, clock) as processors:
        source = Source(lanes)
        source.offer((unit("b", lane=2, batch={"max_wait": 5.0}), 1))
        source.offer((unit("a", lane=1, batch={"max_wait": 7.0}), 1))
        assert go_on(processors) == []
        clock.now += 5.0
        assert [work.unit.table.name for work in go_on(processors)] == ["b"]
        clock.now += 2.0
        assert [work.unit.table.name for work in go_on(processors)] == ["a", "b"]


def test_without_work_stealing_the_lane_that_got_work_is_woken_and_not_one_whose_table_gathers(
    clock: Clock,
) -> None:
    lanes = lanes_of(clock, count=2, work_stealing=False)
    with sleeping(lanes, clock) as processors:
        Source(lanes).offer((unit("a", lane=0, batch={"max_wait": 5.0}), 1), (unit("b", lane=1), 1))
        assert [work.unit.table.name for work in go_on(processors)] == ["b"]


def test_a_delay_ends_though_the_processor_that_knew_of_it_took_other_work(clock: Clock) -> None:
    lanes = lanes_of(clock)
    with sleeping(lanes, clock) as processors:
        source = Source(lanes)
        source.offer((unit("fails", lane=0), 1))
        [failed] = go_on(processors)
        lanes.give_back(0, failed, delay=3.0)
        processors[0].put_down()
        go_on(processors)
        source.offer((unit("long", lane=0), 1))
        assert len(go_on(processors)) == 1
        clock.now += 3.0
        assert failed in go_on(processors)


def test_an_earlier_timer_is_not_slept_over(clock: Clock) -> None:
    lanes = lanes_of(clock, count=1)
    with sleeping(lanes, clock) as processors:
        source = Source(lanes)
        source.offer((unit("late", batch={"max_wait": 60.0}), 1))
        go_on(processors)
        source.offer((unit("soon", batch={"max_wait": 2.0}), 1))
        go_on(processors)
        clock.now += 2.0
        assert [work.unit.table.name for work in go_on(processors)] == ["soon"]


@pytest.mark.parametrize("stealing", [True, False])
def test_pressure_wakes_those_who_gather(clock: Clock, stealing: bool) -> None:
    lanes = lanes_of(clock, count=3, max_records=4, work_stealing=stealing)
    with sleeping(lanes, clock) as processors:
        source = Source(lanes)
        tables = [unit(f"t{lane}", lane=lane, batch={"max_wait": 60.0}) for lane in (1, 2)]
        source.offer(*((table, 3) for table in tables))
        go_on(processors)
        assert not source.offer((tables[0], 3))
        assert {work.unit for work in go_on(processors)} == set(tables)


@pytest.mark.parametrize("halted", [True, False])
@pytest.mark.parametrize("stealing", [True, False])
def test_what_stays_of_a_kept_batch_goes_on_at_once_when_another_partition_of_it_leaves(
    clock: Clock, halted: bool, stealing: bool
) -> None:
    lanes = lanes_of(clock, work_stealing=stealing)
    with sleeping(lanes, clock) as processors:
        leaving, staying = Source(lanes, assignment(0)), Source(lanes, assignment(1))
        table = unit("a")
        made = [chunk(of.assignment, [record(n) for n in range(2)]) for of in (leaving, staying)]
        lanes.offer(delivery(*((table, piece) for piece in made)))
        [work] = go_on(processors)
        work.finish_records(3)
        if halted:
            lanes.halt(0, work, "it failed for good")
        else:
            lanes.give_back(0, work, delay=60.0, error="it failed")
        processors[0].put_down()
        assert go_on(processors) == []
        lanes.withdraw([table], closed(leaving.assignment), 0.0)
        [rest] = go_on(processors)
        assert offsets(rest) == [1], "of the partition that stays, 0 was finished before"
        assert rest.chunks[0].assignment is staying.assignment


def test_a_stop_wakes_everybody(clock: Clock) -> None:
    lanes = lanes_of(clock, count=3)
    with sleeping(lanes, clock) as processors:
        Source(lanes).offer((unit("a", batch={"max_wait": 60.0}), 1))
        go_on(processors)
        lanes.stop()
        for processor in processors:
            processor.step()
        assert {processor.doing for processor in processors} == {Doing.STOPPED}


def test_who_waits_for_space_is_told_of_it() -> None:
    lanes = Lanes(LanesRule(count=1, max_records=2, max_bytes=BIG, work_stealing=True), time.monotonic)
    source = Source(lanes)
    source.offer((unit("a"), 2))
    assert not source.offer((unit("b"), 1))
    work = lanes.take(0)
    assert work is not None
    told: list[bool] = []
    waiter = threading.Thread(target=lambda: told.append(lanes.wait_for_space(30.0)))
    waiter.start()
    lanes.finish(0, work)
    waiter.join(5)
    assert told == [True]


def test_two_hundred_tables_on_sixteen_threads_run_one_batch_each_at_a_time_and_in_order() -> None:
    tables, polls, per_poll = 200, 20, 400
    lanes = Lanes(LanesRule(count=16, max_records=600, max_bytes=BIG, work_stealing=True), time.monotonic)
    units = [
        unit(f"t{n}", lane=n % 16, batch={"max_records": 7, "max_wait": 0.002 * (n % 2)})
        for n in range(tables)
    ]
    running = dict.fromkeys(units, 0)
    handled: dict[object, list[int]] = {each: [] for each in units}
    faults: list[str] = []

    def process(number: int) -> None:
        own = random.Random(number)
        while (work := lanes.take(number)) is not None:
            running[work.unit] += 1
            if running[work.unit] != 1:
                faults.append(f"{work.unit.table.label} runs twice")
            time.sleep(own.random() / 1000)
            failed = own.random() < 0.1
            if not failed:
                handled[work.unit] += offsets(work)
                work.finish_records(work.records)
            running[work.unit] -= 1
            if failed:
                lanes.give_back(number, work, delay=own.random() / 1000)
            else:
                lanes.finish(number, work)

    threads = [threading.Thread(target=process, args=(number,), daemon=True) for number in range(16)]
    for thread in threads:
        thread.start()
    source = assignment()
    rng = random.Random(1)
    expected: dict[object, list[int]] = {each: [] for each in units}
    for poll in range(polls):
        by_unit: dict[int, list[int]] = {}
        for offset in range(poll * per_poll, (poll + 1) * per_poll):
            by_unit.setdefault(rng.randrange(tables), []).append(offset)
        run = source.tracker.register(range(poll * per_poll, (poll + 1) * per_poll))
        what = delivery()
        for number, mine in by_unit.items():
            piece = chunk(assignment(), [record(offset, value=b"") for offset in mine])
            piece.run = run
            what.add(units[number], piece)
            expected[units[number]] += mine
        while not lanes.offer(what):
            lanes.wait_for_space(1.0)
    end = time.monotonic() + 20
    while source.tracker.unfinished and time.monotonic() < end:
        time.sleep(0.005)
    lanes.stop()
    for thread in threads:
        thread.join(5)
    assert not faults
    assert handled == expected
    assert all(lane.records == lane.bytes == 0 for lane in lanes.lanes)


def test_a_timer_goes_with_the_batch_that_it_was_set_for(clock: Clock) -> None:
    """A table that gathers for an hour and is full at once leaves none behind, whatever its batches are."""
    lanes = lanes_of(clock)
    gathers = unit("orders", batch={"max_records": 2, "max_wait": "1h"})
    waits = unit("items", batch={"max_records": 2, "max_wait": "1h"})
    source = assignment()
    assert lanes.offer(delivery((waits, chunk(source, [record(0)]))))
    timers = lanes.schedule.timers
    for number in range(1, 1001):
        for offset in (2 * number, 2 * number + 1):
            assert lanes.offer(delivery((gathers, chunk(source, [record(offset)]))))
        work = lanes.take(0)
        assert work is not None
        assert work.records == 2
        lanes.finish(0, work)
        clock.now += 0.001
    assert len(timers._units) == 1
    assert list(timers.gathering()) == [waits]
    clock.now += 3600
    work = lanes.take(0)
    assert work is not None
    assert work.unit is waits
