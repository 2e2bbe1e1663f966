"""Lanes with tables in either order, their processors, and what must hold of them after every event."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from building import Clock
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from lane_building import has_room
from row_building import Routed
from row_model import RULES, TABLES, Model
from stepping import Doing, SteppedProcessor, SteppedWithdrawal, nobody_sleeps_while_there_is_work

from worker.configuration import LanesRule
from worker.fetching.parking import written
from worker.lanes.lanes import Lanes
from worker.lanes.parking import Parkable, Parked, in_memory
from worker.units.assigned_partition import Assignment
from worker.units.chunk import RECORD_OVERHEAD, Chunk
from worker.units.delivery import Delivery
from worker.units.parking_files import ParkingLot
from worker.units.sharding import spread
from worker.units.unit import Unit, UnitState
from worker.units.work import Work

__all__ = ["LANES", "MAX_BYTES", "MAX_RECORDS", "RowStage", "numbers"]

LANES = 3
MAX_RECORDS, MAX_BYTES = 20, 50 * 500
numbers = st.integers(0, LANES - 1)


class RowStage(RuleBasedStateMachine):
    """Processors look for work and finish it. What else happens is the rules' of the machine."""

    order_by: ClassVar[str]

    @initialize(stealing=st.booleans())
    def begin(self, stealing: bool) -> None:
        self.clock = Clock()
        self.stealing = stealing
        self.lanes = Lanes(
            LanesRule(count=LANES, max_records=MAX_RECORDS, max_bytes=MAX_BYTES, work_stealing=stealing),
            self.clock,
        )
        self.routed = Routed(*RULES, order_by=self.order_by, lanes=LANES)
        self.units = [self.routed.unit(name) for name in TABLES]
        self.processors = [SteppedProcessor(self.lanes, number, self.clock) for number in range(LANES)]
        self.next = [0, 0]
        self.model = Model(TABLES, by_row=self.order_by == "row")
        self.held: deque[Delivery] = deque()
        self.folder = TemporaryDirectory()
        self.lot = ParkingLot(Path(self.folder.name))
        self.written: list[Parked] = []
        self.called_off = False
        self.withdrawal: SteppedWithdrawal | None = None
        self.gone: list[Assignment] = []
        """Partitions that left while batches of theirs ran on, until those end."""

    # -- what there is

    def members(self) -> list[Unit]:
        return [member for each in self.units for member in each.members()]

    def running(self) -> list[Work]:
        return [p.work for p in self.processors if p.work is not None]

    def works(self, of: Unit) -> list[Work]:
        running = [work for work in self.running() if work.unit is of]
        kept = self.lanes.schedule.kept.get(of)
        return running + ([kept] if kept is not None else [])

    def pieces(self, of: Unit) -> list[Chunk]:
        return [*of.chunks, *(piece for work in self.works(of) for piece in work.chunks)]

    # -- what the fetcher and the processors do at each step

    def offer(self) -> None:
        """What is held, until something does not fit."""
        while self.held:
            what = self.held[0]
            fits = has_room(self.lanes, what, max_records=MAX_RECORDS, max_bytes=MAX_BYTES)
            assert self.lanes.offer(what) == fits
            if not fits:
                assert not any(each.state is UnitState.GATHERING for each in self.members())
                return
            self.model.queued(self.held.popleft())

    @rule(number=numbers)
    def look_for_work(self, number: int) -> None:
        processor = self.processors[number]
        if processor.doing is Doing.WORKING or processor.asleep:
            return
        processor.step()
        work = processor.work
        if work is None:
            return
        if self.called_off:
            self.called_off = False
            self.model.give_up(work)
            self.lanes.give_back(number, work, delay=0.0, error=work.unit.error)
            processor.put_down()
            return
        if work.parked:
            work.load()
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

    @rule()
    def the_next_batch_is_called_off(self) -> None:
        """It is given back before its records are read."""
        self.called_off = True

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

    def park(self, members: Sequence[Unit]) -> None:
        """All that these have queued or keep; it may run before that is told to the lanes."""
        for each in members:
            chunks = [piece for piece in each.chunks if not piece.parked and piece.messages]
            kept = self.lanes.schedule.kept.get(each)
            self.written.append(written(self.lot, Parkable(each, kept, chunks)))

    def what_was_written_counts(self) -> None:
        for parked in self.written:
            self.lanes.parked.park(parked)
        self.written.clear()
        self.lot.tidy()

    # -- what must hold

    @invariant()
    def counters_hold_what_is_queued_kept_and_running(self) -> None:
        spread_bytes = 0
        for lane in self.lanes.lanes:
            held: dict[tuple[Assignment, int], int] = {}
            for each in self.units:
                if each.lane == lane.number:
                    for member in each.members():
                        for piece in self.pieces(member):
                            for message in () if piece.parked else piece.messages:
                                held[piece.assignment, message.offset()] = len(message) + RECORD_OVERHEAD
            assert (lane.records, lane.bytes) == (len(held), sum(held.values()))
            assert all(each.state is UnitState.READY for each in lane.ready)
            assert len(set(lane.ready)) == len(lane.ready)
        for each in self.units:
            for member in each.members():
                assert member.records == sum(len(piece.messages) for piece in member.chunks)
                assert member.bytes == sum(piece.bytes for piece in member.chunks)
                assert member.parked == sum(len(c.messages) for c in member.chunks if c.parked)
                assert in_memory(member) == [c for c in member.chunks if c.messages and not c.parked]
            if each.shards is None:
                continue
            pieces = [piece for shard in each.shards.units.values() for piece in self.pieces(shard)]
            assert each.shards.records == sum(len(piece.messages) for piece in pieces)
            assert each.shards.bytes == sum(piece.bytes for piece in pieces if not piece.parked)
            assert all(pieces and s.state is not UnitState.IDLE for s in each.shards.units.values())
            spread_bytes += each.shards.bytes
        assert self.lanes.room.spread == spread_bytes

    @invariant()
    def offsets_count_as_finished_in_an_order_that_a_crash_may_cut(self) -> None:
        """Those of a partition that left, too: what is finished of it is committed when it has left."""
        for of in (*self.routed.partitions, *self.gone):
            self.model.finished(of)
        running = {piece.assignment for work in self.running() for piece in work.chunks}
        self.gone = [of for of in self.gone if of in running]

    @invariant()
    def nobody_sleeps_while_there_is_work_for_it(self) -> None:
        nobody_sleeps_while_there_is_work(self.processors, self.members(), stealing=self.stealing)

    # -- the end

    def step_the_fetcher(self) -> None:
        """It offers what it holds, or looks whether a partition has left. The machine says how."""
        raise AssertionError(self)

    def drain(self) -> None:
        """Everything is done but what is halted, and what waits for that; only who is woken works."""
        for _ in range(500):
            for processor in self.processors:
                self.look_for_work(processor.number)
                self.finish(processor.number)
                self.counters_hold_what_is_queued_kept_and_running()
                self.nobody_sleeps_while_there_is_work_for_it()
            for parkable in self.lanes.parked.to_park(self.units) if self.held else ():
                self.lanes.parked.park(written(self.lot, parkable))
            self.step_the_fetcher()
            quiescent = (UnitState.IDLE, UnitState.HALTED, UnitState.WAITING_FOR_OTHERS)
            busy = self.withdrawal is not None or any(each.state not in quiescent for each in self.members())
            if not busy and not self.held:
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
