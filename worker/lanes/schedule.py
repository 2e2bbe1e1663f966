"""When a table's next batch may start: if it is full, after `max_wait`, or when the units that it waits for
let it. Guarded by the lock of `Lanes`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from worker.lanes.batch_cutting import cut, rebind, unfold
from worker.lanes.lane import Lane, Room, Timers
from worker.lanes.parking import unpark
from worker.lanes.ready_units import IdleProcessors, ReadyUnits
from worker.units.assigned_partition import Assignment
from worker.units.chunk import Barrier, Chunk
from worker.units.sharding import ShardChunk
from worker.units.unit import Shard, Unit, UnitState
from worker.units.work import Work

if TYPE_CHECKING:
    from worker.units.table import Table


def _reached(barrier: Barrier[Unit]) -> bool:
    """Whether all its tables have finished everything before it."""
    return all(
        unit.state is UnitState.WAITING_FOR_OTHERS
        and unit.chunks[0].barrier is barrier
        and (unit.shards is None or unit.shards.through)
        for unit in (barrier.home, *barrier.others)
    )


class Schedule:
    """Callers change what units contain. They then let ready units continue, and finally call `wake`."""

    def __init__(self, lanes: Sequence[Lane], room: Room, *, stealing: bool) -> None:
        self.ready = ReadyUnits(lanes, stealing=stealing)
        self.timers = Timers()
        self.idle = IdleProcessors(lanes, self.timers)
        self._lanes = lanes
        self._room = room
        self._crowded: dict[Unit, None] = {}  # tables that wait for fewer rows in shards
        self.kept: dict[Unit, Work] = {}
        """Failed batches to be retried (those of halted tables: after their rule has changed)."""
        self.finished_records = 0
        """Records that finished because a partition was revoked for which they were held back."""

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
        """Whether nothing is running, and nothing will run by itself."""
        return not self.ready and not self.timers and not any(lane.running for lane in self._lanes)

    def give_table(self, unit: Unit, table: Table) -> None:
        """Give a table other rules and handlers, and retry at once what halted or waits."""
        members = unit.members()
        for member in members:
            member.table = table
        again = [member for member in members if member.state in (UnitState.HALTED, UnitState.BACKOFF)]
        for member in again:
            member.mended()
        self.let_run(again)

    def retire(self, lane: Lane) -> None:
        """Its processor ends. Another one takes over its notifications, its watch and its work."""
        lane.manned = False
        self.idle.wake(len(self.ready), stealing=self.ready.stealing)
        self.idle.left_for_work()

    def wake(self, *, by_processor: bool = False) -> None:
        """Notify one processor for each unit that became ready. A calling processor counts as one."""
        if units := self.ready.untold():
            stealing = self.ready.stealing
            self.idle.wake(units - (by_processor and stealing), stealing=stealing)

    def arrange(self, unit: Unit) -> None:
        """Continue with the queue of a unit that neither runs nor keeps a batch."""
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
        if unit.state is not UnitState.IDLE:  # not for most units: this saves time
            self.timers.cancel(unit)
        unit.state = UnitState.READY
        self.ready.add(unit)

    def set_timer(self, unit: Unit, due: float) -> None:
        self.timers.set(unit, due)
        self.idle.timer_set(due)

    def hurry(self) -> None:
        """No unit waits any longer for a fuller batch."""
        self.let_run(self.timers.gathering())
        self.wake()

    def let_run(self, units: Iterable[Unit]) -> None:
        """Make these units ready without further waiting."""
        for unit in units:
            self._make_ready(unit)

    def look_again(self) -> None:
        """Check the units that gather, or wait for fewer rows in shards, by the new bounds or rules."""
        for unit in self.timers.gathering():
            self.timers.cancel(unit)
            unit.state = UnitState.IDLE
            self.arrange(unit)
        self._look_at_crowded()
        self.wake()

    def cut(self, unit: Unit) -> Work:
        """Return the unit's next batch: the kept one, or one cut from its queue."""
        work = self.kept.pop(unit, None)
        if work is None:
            room = self._room.max_records, self._room.max_bytes
            work = cut(unit, room, others_wait=bool(self.ready))
            if unit.parked:
                unit.parked -= sum(len(chunk.messages) for chunk in work.chunks if chunk.parked)
                unpark(self._room, work)
            return work
        if work.parked:
            unpark(self._room, work)
        if work.table is not unit.table:
            rebind(work)
        return work

    def spread(self, unit: Unit, parts: Iterable[tuple[int, ShardChunk]]) -> None:
        """Queue these rows of a table in its shards."""
        shards = unit.shards
        assert shards is not None  # only batches of such a table are distributed
        for number, chunk in parts:
            if chunk.assignment.closed:
                self._room.release(unit, *chunk.leave())
                continue
            shard = shards.get(unit, number, self.ready.count)
            shard.push(chunk)
            shards.records += len(chunk.messages)
            self._room.count_spread(shard, chunk.bytes)
            if shard.state in (UnitState.IDLE, UnitState.GATHERING):
                self.arrange(shard)

    def put_back(self, unit: Unit, chunks: Collection[Chunk]) -> None:
        """Queue a running batch's other chunks again, in front, except those of revoked partitions."""
        unit.push_back(chunk for chunk in chunks if not chunk.assignment.closed)
        self._let_go(unit, [chunk for chunk in chunks if chunk.assignment.closed])

    def settle(self, unit: Unit, work: Work) -> None:
        """Continue after a finished batch of a shard, or of a record that stood alone."""
        barriers = self._let_go(unit, work.chunks)
        if unit.shards is not None:
            unit.shards.key_columns = None
        self.arrange(unit)
        self._pass(barriers)
        self.let_others_go_on(unit)

    def unfold(self, unit: Unit) -> None:
        """Turn a kept batch back into queued records, because some of its partitions were revoked."""
        barriers = self._let_go(unit, unfold(self.kept.pop(unit)))
        self._again(unit)
        self._pass(barriers)
        self.let_others_go_on(unit)

    def drop(self, units: Iterable[Unit], gone: set[Assignment]) -> None:
        """Forget the records of revoked partitions in the units and their shards."""
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
        """Stop waiting for records of these revoked partitions."""
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
        """Whether the unit waits because of shards or a barrier, or becomes ready past one. Otherwise, it
        continues like others."""
        chunks = unit.chunks
        while chunks and (barrier := chunks[0].barrier) is not None and barrier.over:
            chunks.popleft()  # this table's place in a barrier that is over
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
        """Its shards must not wait for fuller batches, because the table waits for them."""
        self.let_run(member for member in unit.members() if member.state is UnitState.GATHERING)

    def _again(self, unit: Unit) -> None:
        """Arrange a unit again that lost some of its records."""
        if unit.state is UnitState.READY:
            self.ready.remove(unit)
        self.timers.cancel(unit)
        unit.state = UnitState.IDLE
        unit.mended()
        self.arrange(unit)

    def _let_go(self, unit: Unit, chunks: Iterable[Chunk]) -> list[Barrier[Unit]]:
        """Release the room of chunks that a unit no longer has. Returns the barriers that are now over."""
        barriers = []
        parts = weight = records = size = 0
        for chunk in chunks:
            parts += len(chunk.messages)
            weight += 0 if chunk.parked else chunk.bytes
            left = chunk.leave()
            records += left[0]
            size += left[1]
            if chunk.barrier is not None:
                chunk.barrier.over = True
                barriers.append(chunk.barrier)
        self._room.release(unit, records, size)
        if isinstance(unit, Shard) and unit.whole.shards is not None:
            unit.whole.shards.records -= parts
            self._room.count_spread(unit, -weight)
        return barriers

    def _pass(self, barriers: Iterable[Barrier[Unit]]) -> None:
        """Let the tables continue that wait at these finished barriers."""
        for barrier in barriers:
            for unit in barrier.others:
                if unit.state is UnitState.WAITING_FOR_OTHERS:
                    unit.state = UnitState.IDLE
                    self.arrange(unit)

    def let_others_go_on(self, unit: Unit) -> None:
        """Rows of a shard are gone or finished. Let the units continue that waited for them."""
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
