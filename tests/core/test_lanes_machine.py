"""Lanes under every order of events: nothing lost or doubled, order kept, counters true, nobody asleep."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from building import Clock, assignment, chunk, ddl, delivery, record, unit
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from lane_building import has_room
from stepping import Doing, SteppedProcessor, nobody_sleeps_while_there_is_work

from worker.configuration import LanesRule
from worker.fetching.parking import written
from worker.lanes.lanes import Lanes
from worker.lanes.parking import Parkable, Parked, in_memory
from worker.units.assigned_partition import Assignment
from worker.units.delivery import Delivery
from worker.units.parking_files import ParkingLot
from worker.units.unit import Unit, UnitState
from worker.units.work import Work

LANES = 3
MAX_RECORDS, MAX_BYTES = 20, 50 * 300
RULES: list[dict[str, Any]] = [{}, {"max_records": 3, "max_wait": 4.0}, {"max_bytes": 700}, {"max_wait": 7.0}]
numbers = st.integers(0, LANES - 1)
POLLS = st.tuples(
    st.integers(0, 1),  # partition
    st.lists(
        st.tuples(st.sampled_from(range(len(RULES))), st.sampled_from([1, 1, 2, 3, 3, 18])),
        min_size=1,
        max_size=3,
        unique_by=lambda part: part[0],
    ),  # (table, records)
    st.sampled_from([0, 0, 40, 5000]),  # bytes a record
    st.sampled_from([False, False, False, True]),  # DDL instead
)
Place = tuple[Assignment, int]


pytestmark = pytest.mark.timeout(900)  # a counterexample is made small first: that takes minutes


class LanesMachine(RuleBasedStateMachine):
    @initialize(stealing=st.booleans())
    def begin(self, stealing: bool) -> None:
        self.clock = Clock()
        self.stealing = stealing
        self.lanes = Lanes(
            LanesRule(count=LANES, max_records=MAX_RECORDS, max_bytes=MAX_BYTES, work_stealing=stealing),
            self.clock,
        )
        self.units = [unit(f"t{n}", lane=n % LANES, batch=rule) for n, rule in enumerate(RULES)]
        self.processors = [SteppedProcessor(self.lanes, number, self.clock) for number in range(LANES)]
        self.partitions = [assignment(0), assignment(1)]
        self.next = [0, 0]
        self.waiting: dict[Unit, list[Place]] = {each: [] for each in self.units}  # to be done, in order
        self.not_before = dict.fromkeys(self.units, 0.0)
        self.held: Delivery | None = None
        self.folder = TemporaryDirectory()
        self.lot = ParkingLot(Path(self.folder.name))
        self.written: list[Parked] = []
        self.called_off = False
        self.max_records, self.max_bytes = MAX_RECORDS, MAX_BYTES

    @rule(polls=st.lists(POLLS, min_size=1, max_size=3))
    def fetch(self, polls: list[tuple[int, list[tuple[int, int]], int, bool]]) -> None:
        for partition, parts, weight, alone in polls:
            if self.held is not None:
                return
            made = []
            for number, count in parts:
                first = self.next[partition]
                if alone:
                    records = [ddl(first)]
                else:
                    records = [record(first + n, value=b"x" * weight) for n in range(count)]
                self.next[partition] += len(records)
                made.append((self.units[number], chunk(self.partitions[partition], records, alone=alone)))
            self.offer(delivery(*made))

    def offer(self, what: Delivery) -> None:
        fits = has_room(self.lanes, what, max_records=self.max_records, max_bytes=self.max_bytes)
        assert self.lanes.offer(what) == fits
        assert self.lanes.seen.pressed == (not fits)
        self.held = None if fits else what
        if fits:
            for to, piece in what.parts:
                self.waiting[to] += [(piece.assignment, m.offset()) for m in piece.messages]
        else:
            assert not any(each.state is UnitState.GATHERING for each in self.units)

    @precondition(lambda self: self.held is not None)
    @rule()
    def offer_the_held_again(self) -> None:
        assert self.held is not None
        self.offer(self.held)

    @rule(number=numbers)
    def look_for_work(self, number: int) -> None:
        processor = self.processors[number]
        if processor.doing is Doing.WORKING or processor.asleep:
            return
        processor.step()
        work = processor.work
        if work is None:
            return
        if self.called_off or work.withdrawn:
            self.called_off = False
            self.lanes.give_back(number, work, delay=0.0, error=work.unit.error)
            processor.put_down()
            return
        if work.parked:
            work.load()
        assert [p.work for p in self.processors if p.work and p.work.unit is work.unit] == [work]
        assert self.stealing or work.unit.lane == number
        assert work.unit.state is UnitState.RUNNING
        assert self.clock.now >= self.not_before[work.unit], "a failed batch waits for its time"
        whole = self.left(work)
        assert self.waiting[work.unit][: len(whole)] == whole, "records of a table come in their order"
        alone = [piece for piece in work.chunks if piece.alone]
        assert not alone or len(work.chunks) == work.records == 1
        bounds = work.unit.table
        assert work.records <= bounds.max_records
        assert work.bytes <= bounds.max_bytes or work.records == 1

    def left(self, work: Work) -> list[Place]:
        """What is to be done of the batch: without what is finished or belongs to a partition that left."""
        places = [(piece.assignment, message.offset()) for piece, message in work.messages()]
        return [place for place in places[work.finished :] if not place[0].closed]

    @rule()
    def everybody_looks_for_work(self) -> None:
        for number in range(LANES):
            self.look_for_work(number)

    @rule(number=numbers)
    def finish(self, number: int) -> None:
        processor = self.processors[number]
        if processor.work is not None:
            self.some_finished(processor.work, processor.work.records)
            self.lanes.finish(number, processor.work)
            processor.put_down()

    def some_finished(self, work: Work, count: int) -> None:
        before = self.left(work)
        work.finish_records(count)
        done = len(before) - len(self.left(work))
        assert self.waiting[work.unit][:done] == before[:done]
        del self.waiting[work.unit][:done]

    @rule(number=numbers, delay=st.sampled_from([0.0, 2.0, 9.0]), part=st.integers(0, 4))
    def give_back(self, number: int, delay: float, part: int) -> None:
        processor = self.processors[number]
        if processor.work is not None:
            self.some_finished(processor.work, min(part, processor.work.records - 1))
            self.lanes.give_back(number, processor.work, delay=delay, error="it failed")
            self.not_before[processor.work.unit] = self.clock.now + (0 if processor.work.withdrawn else delay)
            processor.put_down()

    @rule(number=numbers, part=st.integers(0, 4), halt=st.booleans(), partition=st.integers(0, 1))
    def a_partition_of_a_kept_batch_leaves(self, number: int, part: int, halt: bool, partition: int) -> None:
        if halt:
            self.halt(number, part)
        else:
            self.give_back(number, 9.0, part)
        self.everybody_looks_for_work()
        self.a_partition_leaves_and_comes_again(partition)

    @rule(number=numbers, part=st.integers(0, 2))
    def halt(self, number: int, part: int) -> None:
        processor = self.processors[number]
        if processor.work is not None:
            self.some_finished(processor.work, min(part, processor.work.records - 1))
            self.lanes.halt(number, processor.work, "it failed for good")
            processor.put_down()

    @rule(number=numbers, part=st.integers(1, 4))
    def shorten(self, number: int, part: int) -> None:
        processor = self.processors[number]
        if processor.work is not None and processor.work.finished == 0 and part < processor.work.records:
            processor.work = self.lanes.shorten(number, processor.work, part)
            assert processor.work.records == part

    @rule(table=st.sampled_from(range(len(RULES))), at_once=st.booleans())
    def park(self, table: int, at_once: bool) -> None:
        """All that any table has queued or keeps; it may run before that is told to the lanes."""
        each = self.units[table]
        chunks = [piece for piece in each.chunks if not piece.parked and piece.messages]
        self.written.append(written(self.lot, Parkable(each, self.lanes.schedule.kept.get(each), chunks)))
        if at_once:
            self.what_was_written_counts()

    @rule()
    def what_was_written_counts(self) -> None:
        for parked in self.written:
            self.lanes.parked.park(parked)
        self.written.clear()
        self.lot.tidy()

    @rule()
    def the_next_batch_is_called_off(self) -> None:
        """It is given back before its records are read."""
        self.called_off = True

    @rule()
    def park_standing(self) -> None:
        for each in self.lanes.parked.to_park(self.units):
            self.lanes.parked.park(written(self.lot, each))

    @rule(seconds=st.sampled_from([1.0, 4.0, 10.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(records=st.sampled_from([2, MAX_RECORDS, 60]), share=st.sampled_from([0.1, 1.0, 3.0]))
    def other_bounds(self, records: int, share: float) -> None:
        self.max_records, self.max_bytes = records, int(share * MAX_BYTES)
        bounds = {"max_records": records, "max_bytes": self.max_bytes, "work_stealing": self.stealing}
        rule_ = LanesRule.model_validate({"count": LANES, **bounds})
        assert self.lanes.resize(rule_, lambda each: each.lane, self.units) == []
        if self.held is not None and self.held.parts:
            fits = has_room(self.lanes, self.held, max_records=records, max_bytes=self.max_bytes)
            assert self.lanes.wait_for_space(0.0) == fits

    @rule(table=st.sampled_from(range(len(RULES))), wait=st.sampled_from([0.0, 2.0, 7.0, 30.0]))
    def another_rule(self, table: int, wait: float) -> None:
        changed = self.units[table]
        self.lanes.give_tables([(changed, unit(f"t{table}", batch=RULES[table] | {"max_wait": wait}).table)])
        self.not_before[changed] = 0.0  # what it keeps is tried at once

    @rule(partition=st.integers(0, 1))
    def a_partition_leaves_and_comes_again(self, partition: int) -> None:
        gone = self.partitions[partition]
        gone.closed = True
        running = {p.work.unit.table.label for p in self.processors if p.work and p.work.withdrawn}
        if self.held is not None:
            self.held = self.held.without({gone})
        self.not_before = dict.fromkeys(self.units, 0.0)  # what it left of a kept batch goes on at once
        still = self.lanes.withdraw(self.units, {gone}, 0.0)
        assert set(still) <= running
        for to, places in self.waiting.items():
            self.waiting[to] = [place for place in places if place[0] is not gone]
        self.partitions[partition] = assignment(partition, start=self.next[partition])

    @invariant()
    def counters_hold_what_is_queued_kept_and_running(self) -> None:
        if not hasattr(self, "lanes"):
            return
        running = {p.work.unit: p.work for p in self.processors if p.work}
        for lane in self.lanes.lanes:
            records = size = 0
            for each in self.units:
                if each.lane == lane.number:
                    again = self.lanes.schedule.kept.get(each)
                    kept = [w for w in (again, running.get(each)) if w is not None]
                    pieces = [*each.chunks, *(piece for work in kept for piece in work.chunks)]
                    records += sum(len(piece.messages) for piece in pieces if not piece.parked)
                    size += sum(piece.bytes for piece in pieces if not piece.parked)
                    assert each.parked == sum(len(c.messages) for c in each.chunks if c.parked)
                    assert each.records == sum(len(piece.messages) for piece in each.chunks)
                    assert each.bytes == sum(piece.bytes for piece in each.chunks)
                    assert in_memory(each) == [c for c in each.chunks if c.messages and not c.parked]
            assert (lane.records, lane.bytes) == (records, size)
            assert len(set(lane.ready)) == len(lane.ready)
            assert all(each.state is UnitState.READY for each in lane.ready)

    @invariant()
    def who_gathers_may_get_more_and_waits_no_longer_than_it_may(self) -> None:
        for each in getattr(self, "units", ()):
            if each.state is UnitState.GATHERING:
                assert each.records < min(each.table.max_records, self.max_records)
                assert each.bytes < min(each.table.max_bytes, self.max_bytes)
                assert each.due == each.chunks[0].enqueued + each.table.max_wait

    @invariant()
    def nobody_sleeps_while_there_is_work_for_it(self) -> None:
        if not hasattr(self, "lanes"):
            return
        nobody_sleeps_while_there_is_work(self.processors, self.units, stealing=self.stealing)

    def teardown(self) -> None:
        if not hasattr(self, "lanes"):
            return
        try:
            self.drain()
            for partition in (0, 1):
                self.a_partition_leaves_and_comes_again(partition)
            assert not any(self.waiting.values())
            assert all(lane.records == lane.bytes == 0 for lane in self.lanes.lanes)
            assert self.held is None or self.lanes.offer(self.held), "with everything gone there is room"
        finally:
            self.lanes.stop()
            for processor in self.processors:
                processor.close()
            self.lot.close()
            self.folder.cleanup()

    def drain(self) -> None:
        """Everything is done but what halted tables hold; and only those who were woken do it."""
        for _ in range(500):
            for processor in self.processors:
                self.look_for_work(processor.number)
                self.finish(processor.number)
                self.counters_hold_what_is_queued_kept_and_running()
                self.nobody_sleeps_while_there_is_work_for_it()
            if self.held is not None:
                self.park_standing()
                self.offer(self.held)
            busy = [e for e in self.units if e.state not in (UnitState.IDLE, UnitState.HALTED)]
            if not busy and self.held is None:
                break
            self.clock.now += 1.0
        else:
            raise AssertionError(f"never done: {[(e.table.name, e.state) for e in self.units]}")
        for each in self.units:
            assert each.state is UnitState.HALTED or not self.waiting[each]
        if not any(each.state is UnitState.HALTED for each in self.units):
            for place in self.partitions:
                checkpoint = place.tracker.checkpoint()
                assert checkpoint is not None
                assert not checkpoint.ahead
                assert place.tracker.unfinished == 0


LanesMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)
test_lanes_under_every_order_of_events = LanesMachine.TestCase
