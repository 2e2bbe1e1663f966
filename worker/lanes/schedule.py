"""Which units are ready, which gather, and which wait for others. Guarded by the lock of `Lanes`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from worker.lanes.batch_cutting import cut, rebind, unfold
from worker.lanes.idle_processors import IdleProcessors
from worker.lanes.lane import Lane, Room, Timers
from worker.lanes.ready_units import ReadyUnits
from worker.units.assigned_partition import Assignment
from worker.units.barrier import Barrier
from worker.units.chunk import Chunk
from worker.units.rows.shard_chunk import ShardChunk
from worker.units.unit import Shard, Unit, UnitState
from worker.units.work import Work

if TYPE_CHECKING:
    from worker.units.table import Table


def _reached(barrier: Barrier[Unit]) -> bool:
    """Whether all its tables are through with what comes before it."""
    return all(
        unit.state is UnitState.WAITING_FOR_OTHERS
        and unit.chunks[0].barrier is barrier
        and (unit.shards is None or unit.shards.through)
        for unit in (barrier.home, *barrier.others)
    )


class Schedule:
    """Who changes what units hold lets those go on that can, and calls `wake` at the end."""

    def __init__(self, lanes: Sequence[Lane], room: Room, *, stealing: bool) -> None:
        self.ready = ReadyUnits(lanes, stealing=stealing)
        self.timers = Timers()
        self.idle = IdleProcessors(lanes, self.timers)
        self._lanes = lanes
        self._room = room
        self._crowded: dict[Unit, None] = {}  # tables that wait until fewer rows are spread
        self.kept: dict[Unit, Work] = {}
        """Batches that failed, to be tried again (by tables that halted: when their rule is another one)."""
        self.finished_records = 0
        """What counted as finished because a partition left that it was held back for."""

    def rehome(
        self, count: int, home: Callable[[Unit], int], units: Iterable[Unit], *, stealing: bool
    ) -> None:
        """Give every table another home lane."""
        self.ready.count, self.ready.stealing = count, stealing
        for table in units:
            table.lane = home(table)
            self._room.move(table.account, table.lane)
            if table.shards is not None:
                table.shards.rehome(table.lane, count)
        self.ready.rehome()

    @property
    def quiescent(self) -> bool:
        """Whether nothing runs, or is to run by itself."""
        return not self.ready and not self.timers and not any(lane.running for lane in self._lanes)

    def give_table(self, unit: Unit, table: Table) -> None:
        """Let a table go on by other rules and handlers; what halted, or waits, is tried again now."""
        members = unit.members()
        for member in members:
            member.table = table
        again = [member for member in members if member.state in (UnitState.HALTED, UnitState.BACKOFF)]
        for member in again:
            member.mended()
        self.let_run(again)

    def retire(self, lane: Lane) -> None:
        """Its processor ends. What that was told of, or watched, or left to itself, is another's now."""
        lane.manned = False
        self.idle.wake(len(self.ready), stealing=self.ready.stealing)
        self.idle.left_for_work()

    def wake(self, *, by_processor: bool = False) -> None:
        """Tell as many processors as units became ready, but for one that calls: it looks for work next."""
        if units := self.ready.untold():
            stealing = self.ready.stealing
            self.idle.wake(units - (by_processor and stealing), stealing=stealing)

    def arrange(self, unit: Unit) -> None:
        """Let a unit that neither runs nor keeps a batch go on with what it has queued."""
        if not unit.chunks:
            self.timers.cancel(unit)
            unit.state = UnitState.IDLE
            return
        if (unit.chunks[0].alone or unit.shards is not None) and self._stands(unit):
            self.timers.cancel(unit)
            return
        wait, room = unit.table.max_wait, self._room
        if wait <= 0 or room.refused is not None or unit.full(room.max_records, room.max_bytes):
            self._make_ready(unit)
        elif unit.state is not UnitState.GATHERING:
            unit.state = UnitState.GATHERING
            self.set_timer(unit, unit.chunks[0].enqueued + wait)

    def _make_ready(self, unit: Unit) -> None:
        if unit.state is not UnitState.IDLE:  # as most are, at the least cost
            self.timers.cancel(unit)
        unit.state = UnitState.READY
        self.ready.add(unit)

    def set_timer(self, unit: Unit, due: float) -> None:
        self.timers.set(unit, due)
        self.idle.timer_set(due)

    def hurry(self) -> None:
        """Nobody waits any longer for a fuller batch."""
        self.let_run(self.timers.gathering())
        self.wake()

    def let_run(self, units: Iterable[Unit]) -> None:
        """They need not wait any longer."""
        for unit in units:
            self._make_ready(unit)

    def look_again(self) -> None:
        """Bounds or rules are others now: who gathers, or waits until fewer rows are spread, goes by them."""
        for unit in self.timers.gathering():
            self.timers.cancel(unit)
            unit.state = UnitState.IDLE
            self.arrange(unit)
        self._look_at_crowded()
        self.wake()

    def cut(self, unit: Unit) -> Work:
        """Its next batch: the one that was kept, or one from its queue."""
        work = self.kept.pop(unit, None)
        if work is None:
            return cut(unit, others_wait=bool(self.ready))
        if work.table is not unit.table:
            rebind(work)
        return work

    def spread(self, unit: Unit, parts: Iterable[tuple[int, ShardChunk]]) -> None:
        """Queue these rows of a table in their shards."""
        shards = unit.shards
        assert shards is not None  # only such a table's batches are spread
        for number, chunk in parts:
            if chunk.assignment.closed:
                self._room.release(unit, *chunk.leave())
                continue
            shard = shards.get(unit, number, self.ready.count)
            shard.push(chunk)
            shards.records += len(chunk.messages)
            shards.bytes += chunk.bytes
            self._room.count_spread(chunk.bytes)
            if shard.state in (UnitState.IDLE, UnitState.GATHERING):
                self.arrange(shard)

    def put_back(self, unit: Unit, chunks: Collection[Chunk]) -> None:
        """Queue again, in front, what a running batch did not get to, but for partitions that left."""
        unit.push_back(chunk for chunk in chunks if not chunk.assignment.closed)
        self._let_go(unit, [chunk for chunk in chunks if chunk.assignment.closed])

    def settle(self, unit: Unit, work: Work) -> None:
        """Go on after a batch that is done: of a shard, or one that stood alone."""
        barriers = self._let_go(unit, work.chunks)
        if unit.shards is not None:
            unit.shards.key_columns = None
        self.arrange(unit)
        self._pass(barriers)
        self.let_others_go_on(unit)

    def unfold(self, unit: Unit) -> None:
        """Turn a kept batch, some of whose partitions left, back into queued records."""
        barriers = self._let_go(unit, unfold(self.kept.pop(unit)))
        self._again(unit)
        self._pass(barriers)
        self.let_others_go_on(unit)

    def drop(self, units: Iterable[Unit], gone: set[Assignment]) -> None:
        """Forget what the units, and those of their shards, hold of partitions that leave."""
        barriers: list[Barrier[Unit]] = []
        for table in units:
            for unit in table.members():
                dropped = unit.drop(gone)
                kept = self.kept.get(unit)
                if kept is not None and any(chunk.assignment in gone for chunk in kept.chunks):
                    dropped += unfold(self.kept.pop(unit))
                elif not dropped:
                    continue
                barriers += self._let_go(unit, dropped)
                if unit not in self.kept and unit.state is not UnitState.RUNNING:
                    self._again(unit)
                self.let_others_go_on(unit)
        self._pass(barriers)

    def forget(self, units: Iterable[Unit], gone: set[Assignment]) -> None:
        """Nothing is waited for any more that left with these partitions."""
        for assignment in gone:
            assignment.forgotten = True
        for unit in units:
            if unit.shards is not None:
                finished = unit.shards.order.forget(gone)
                unit.shards.finished_records += finished
                self.finished_records += finished
                if unit.state is UnitState.WAITING_FOR_OTHERS:
                    self.arrange(unit)

    def _stands(self, unit: Unit) -> bool:
        """Whether a unit of a table with shards or a barrier waits, or goes on by them: else it may do as
        others do."""
        chunks = unit.chunks
        while chunks and (barrier := chunks[0].barrier) is not None and barrier.over:
            chunks.popleft()  # it was this table's place in it
        if not chunks:
            unit.state = UnitState.IDLE
            return True
        front, shards = chunks[0], unit.shards
        if front.alone:
            unit.state = UnitState.WAITING_FOR_OTHERS
            if shards is not None and not shards.through:
                self._hurry(unit)
                return True
            if front.barrier is not None:
                if not _reached(front.barrier):
                    return True
                unit = front.barrier.home
        elif shards is None:
            return False
        elif shards.order.held_back >= self._room.max_records or not self._room.may_spread(unit):
            unit.state = UnitState.WAITING_FOR_OTHERS
            self._crowded[unit] = None
            self._hurry(unit)
            return True
        self._make_ready(unit)
        return True

    def _hurry(self, unit: Unit) -> None:
        """Its shards must not wait for fuller batches: the table waits for them."""
        self.let_run(member for member in unit.members() if member.state is UnitState.GATHERING)

    def _again(self, unit: Unit) -> None:
        """Look anew at a unit that lost some of what it had."""
        if unit.state is UnitState.READY:
            self.ready.remove(unit)
        self.timers.cancel(unit)
        unit.state = UnitState.IDLE
        unit.mended()
        self.arrange(unit)

    def _let_go(self, unit: Unit, chunks: Iterable[Chunk]) -> list[Barrier[Unit]]:
        """Count out what a unit no longer holds. Returns the barriers that are over by it."""
        barriers = []
        parts = weight = records = size = 0
        for chunk in chunks:
            parts += len(chunk.messages)
            weight += chunk.bytes
            left = chunk.leave()
            records += left[0]
            size += left[1]
            if chunk.barrier is not None:
                chunk.barrier.over = True
                barriers.append(chunk.barrier)
        self._room.release(unit, records, size)
        if isinstance(unit, Shard) and unit.whole.shards is not None:
            unit.whole.shards.records -= parts
            unit.whole.shards.bytes -= weight
            self._room.count_spread(-weight)
        return barriers

    def _pass(self, barriers: Iterable[Barrier[Unit]]) -> None:
        """Let the tables go on that stand at these barriers, which are over."""
        for barrier in barriers:
            for unit in barrier.others:
                if unit.state is UnitState.WAITING_FOR_OTHERS:
                    unit.state = UnitState.IDLE
                    self.arrange(unit)

    def let_others_go_on(self, unit: Unit) -> None:
        """Rows of a shard are gone, or finished: let those go on that waited for it."""
        if not isinstance(unit, Shard):
            return
        whole = unit.whole
        if unit.state is UnitState.IDLE and whole.shards is not None:
            whole.shards.let_go(unit)
        if whole.state is UnitState.WAITING_FOR_OTHERS:
            self.arrange(whole)
        if self._crowded and self._room.may_spread():
            self._look_at_crowded()

    def _look_at_crowded(self) -> None:
        crowded, self._crowded = self._crowded, {}
        for table in crowded:
            if table.state is UnitState.WAITING_FOR_OTHERS:
                self.arrange(table)
