"""Shards and barriers under every order of events: order kept, nothing lost or doubled, counters true."""

from __future__ import annotations

from typing import Any, ClassVar

from building import Clock, assignment
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from lane_building import has_room
from row_building import Routed
from row_model import POLLS, RULES, TABLES, Model
from stepping import Doing, SteppedProcessor, nobody_sleeps_while_there_is_work

from worker.assignment import Assignment
from worker.chunk import RECORD_OVERHEAD, Chunk, Delivery
from worker.lanes import Lanes
from worker.spreading import spread
from worker.unit import Unit, UnitState
from worker.work import Work

LANES = 3
MAX_RECORDS, MAX_BYTES = 20, 50 * 500
numbers = st.integers(0, LANES - 1)


class RowOrderMachine(RuleBasedStateMachine):
    order_by: ClassVar[str]

    @initialize(stealing=st.booleans())
    def begin(self, stealing: bool) -> None:
        self.clock = Clock()
        self.stealing = stealing
        self.lanes = Lanes(
            LANES, max_records=MAX_RECORDS, max_bytes=MAX_BYTES, work_stealing=stealing, clock=self.clock
        )
        self.routed = Routed(*RULES, order_by=self.order_by, lanes=LANES)
        self.units = [self.routed.unit(name) for name in TABLES]
        self.processors = [SteppedProcessor(self.lanes, number, self.clock) for number in range(LANES)]
        self.next = [0, 0]
        self.model = Model(TABLES, by_row=self.order_by == "row")
        self.held: Delivery | None = None

    def members(self) -> list[Unit]:
        return [member for each in self.units for member in each.members()]

    @rule(polls=st.lists(POLLS, min_size=1, max_size=2))
    def fetch(self, polls: list[tuple[int, list[tuple[str, str, list[Any]]]]]) -> None:
        if self.held is not None:
            return
        parts = []
        for number, wanted in polls:
            of = self.routed.partitions[number]
            made = []
            for each in wanted:
                made.append(self.model.record(of, self.next[number], *each))
                self.next[number] += 1
            parts.append((of, made))
        pieces = self.routed.poll(*parts).pieces(MAX_RECORDS, MAX_BYTES)
        self.offer(pieces[0])
        for piece in pieces[1:]:  # the fetcher would hold them; here they come as soon as there is room
            while self.held is not None:
                for processor in self.processors:
                    self.look_for_work(processor.number)
                    self.finish(processor.number)
                self.clock.now += 1.0
                if self.lanes.dead_end(self.units):
                    return
                self.offer(self.held)
            self.offer(piece)

    def offer(self, what: Delivery | None) -> None:
        if what is None:
            return
        fits = has_room(self.lanes, what, max_records=MAX_RECORDS, max_bytes=MAX_BYTES)
        assert self.lanes.offer(what) == fits
        self.held = None if fits else what
        if not fits:
            assert not any(each.state is UnitState.WAITING for each in self.members())
            return
        self.model.queued(what)

    @precondition(lambda self: self.held is not None)
    @rule()
    def offer_the_held_again(self) -> None:
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
        assert [each for each in self.running() if each.unit is work.unit] == [work]
        assert self.stealing or work.unit.lane == number
        assert work.unit.state is UnitState.RUNNING
        if work.withdrawn:
            self.model.give_up(work)
            self.lanes.give_back(number, work, delay=0.0)
            processor.put_down()
            return
        assert work.decode(lambda _record, _fault: False) is None
        if work.spreads:
            return
        self.model.begins(work, self.running())

    def running(self) -> list[Work]:
        return [p.work for p in self.processors if p.work is not None]

    @rule()
    def everybody_looks_for_work(self) -> None:
        for number in range(LANES):
            self.look_for_work(number)

    @rule(number=numbers)
    def finish(self, number: int) -> None:
        processor = self.processors[number]
        work = processor.work
        if work is None:
            return
        if work.spreads:
            self.lanes.spread(number, work, spread(work))
        else:
            self.model.finish(work, work.records)
            self.lanes.finish(number, work)
            self.model.give_up(work)
        processor.put_down()

    @rule(number=numbers, delay=st.sampled_from([0.0, 2.0, 9.0]), part=st.integers(0, 4))
    def give_back(self, number: int, delay: float, part: int) -> None:
        processor = self.processors[number]
        work = processor.work
        if work is not None:
            self.model.finish(work, min(part, work.records - 1))
            self.model.give_up(work)
            self.lanes.give_back(number, work, delay=delay, error="it failed")
            processor.put_down()

    @rule(number=numbers, part=st.integers(0, 2))
    def halt(self, number: int, part: int) -> None:
        processor = self.processors[number]
        work = processor.work
        if work is not None:
            self.model.finish(work, min(part, work.records - 1))
            self.model.give_up(work)
            self.lanes.halt(number, work, "it failed for good")
            assert work.withdrawn or next(u for u in self.units if u.table is work.unit.table).halted
            processor.put_down()

    @rule(number=numbers, part=st.integers(1, 4))
    def shorten(self, number: int, part: int) -> None:
        processor = self.processors[number]
        work = processor.work
        if work is not None and work.unit.shard is None and work.finished == 0 and part < work.records:
            processor.work = self.lanes.shorten(number, work, part)
            assert processor.work.decode(lambda _record, _fault: False) is None

    @rule(seconds=st.sampled_from([1.0, 4.0, 10.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(partition=st.integers(0, 1))
    def a_partition_leaves_and_comes_again(self, partition: int) -> None:
        gone = self.routed.partitions[partition]
        gone.closed = True
        running = {
            work.unit.table.label
            for work in self.running()
            if any(piece.assignment is gone for piece in work.chunks)
        }
        if self.held is not None:
            rest = self.held.without({gone})
            self.held = rest if rest.parts else None
            if self.held is None:
                self.lanes.forget_held()
        still = self.lanes.withdraw(self.units, {gone}, 0.0)
        assert set(still) == running
        assert len(still) == len(running)
        self.model.leaves(gone, self.running())
        self.routed.partitions[partition] = assignment(partition, start=self.next[partition])

    def works(self, of: Unit) -> list[Work]:
        running = [work for work in self.running() if work.unit is of]
        return running + ([of.held] if of.held is not None else [])

    @invariant()
    def counters_hold_what_is_queued_kept_and_running(self) -> None:
        spread_bytes = 0
        for lane in self.lanes.lanes:
            held: dict[tuple[Assignment, int], int] = {}
            for each in self.units:
                if each.lane == lane.number:
                    for member in each.members():
                        for piece in self.pieces(member):
                            for message in piece.messages:
                                held[piece.assignment, message.offset()] = len(message) + RECORD_OVERHEAD
            assert (lane.records, lane.bytes) == (len(held), sum(held.values()))
            assert all(each.state is UnitState.READY for each in lane.ready)
            assert len(set(lane.ready)) == len(lane.ready)
        for each in self.units:
            for member in each.members():
                assert member.records == sum(len(piece.messages) for piece in member.chunks)
                assert member.bytes == sum(piece.bytes for piece in member.chunks)
            if each.shards is None:
                continue
            pieces = [piece for shard in each.shards.units.values() for piece in self.pieces(shard)]
            assert each.shards.records == sum(len(piece.messages) for piece in pieces)
            assert each.shards.bytes == sum(piece.bytes for piece in pieces)
            assert all(pieces and s.state is not UnitState.IDLE for s in each.shards.units.values())
            spread_bytes += each.shards.bytes
        assert self.lanes.spread_bytes == spread_bytes

    def pieces(self, of: Unit) -> list[Chunk]:
        return [*of.chunks, *(piece for work in self.works(of) for piece in work.chunks)]

    @invariant()
    def offsets_count_as_finished_in_an_order_that_a_crash_may_cut(self) -> None:
        for of in self.routed.partitions:
            self.model.finished(of)

    @invariant()
    def nobody_sleeps_while_there_is_work_for_it(self) -> None:
        nobody_sleeps_while_there_is_work(self.processors, self.members(), stealing=self.stealing)

    def teardown(self) -> None:
        if not hasattr(self, "lanes"):
            return
        try:
            self.drain()
            for partition in (0, 1):
                self.a_partition_leaves_and_comes_again(partition)
            assert not any(self.model.waiting.values())
            assert all(lane.records == lane.bytes == 0 for lane in self.lanes.lanes)
            assert not any(each.chunks for each in self.units), "no barrier is left"
        finally:
            self.lanes.stop()
            for processor in self.processors:
                processor.close()

    def drain(self) -> None:
        """Everything is done but what is halted, and what waits for that; only who is woken works."""
        for _ in range(500):
            for processor in self.processors:
                self.look_for_work(processor.number)
                self.finish(processor.number)
                self.counters_hold_what_is_queued_kept_and_running()
                self.nobody_sleeps_while_there_is_work_for_it()
            self.offer(self.held)
            still = (UnitState.IDLE, UnitState.HALTED, UnitState.BEHIND)
            busy = [each for each in self.members() if each.state not in still]
            if not busy and (self.held is None or self.lanes.dead_end(self.units)):
                break
            self.clock.now += 1.0
        else:
            raise AssertionError(f"never done: {[(e.table.name, e.shard, e.state) for e in self.members()]}")
        if any(each.halted for each in self.units):
            return
        assert not any(self.model.waiting.values())
        assert all(each.state is UnitState.IDLE for each in self.members())
        for of in self.routed.partitions:
            checkpoint = of.tracker.checkpoint()
            assert checkpoint is not None
            assert not checkpoint.ahead
            assert of.tracker.unfinished == 0


class ByRow(RowOrderMachine):
    order_by = "row"


class ByTable(RowOrderMachine):
    order_by = "table"


ByRow.TestCase.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)
ByTable.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
test_rows_in_order_under_every_order_of_events = ByRow.TestCase
test_statements_about_several_tables_under_every_order_of_events = ByTable.TestCase
