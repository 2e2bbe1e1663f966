"""Which units are ready, which gather, and which wait for others. Guarded by the lock of `Lanes`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from worker.lanes.batch_cutting import cut, rebind, unfold
from worker.lanes.idle_processors import IdleProcessors
from worker.lanes.lane import Lane, Room, Timers, fullest, whose_turn
from worker.units.assigned_partition import Assignment
from worker.units.barrier import Barrier
from worker.units.chunk import Chunk
from worker.units.rows.shard_chunk import ShardChunk
from worker.units.unit import Shard, Unit, UnitState
from worker.units.work import Work


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
        self.ready = 0
        """Units in the ready queues of all lanes."""
        self.turns = False
        """See `whose_turn`."""
        self.pressed = False
        """A delivery waits for room: nothing more comes, so nobody may wait for a fuller batch."""
        self.timers = Timers()
        self.idle = IdleProcessors(lanes, self.timers, stealing=stealing)
        self._lanes = lanes
        self.count = len(lanes)
        """Lanes in use: those beyond it were given up, and end when their last batch does."""
        self._room = room
        self._stealing = stealing
        self._tickets = 0
        self._untold = 0  # units that became ready since processors were told the last time
        self._crowded: dict[Unit, None] = {}  # tables that wait until fewer rows are spread
        self.kept: dict[Unit, Work] = {}
        """Batches that failed, to be tried again (by tables that halted: when their rule is another one)."""
        self.finished_records = 0
        """What counted as finished because a partition left that it was held back for."""

    def rehome(
        self, count: int, home: Callable[[Unit], int], units: Iterable[Unit], *, stealing: bool
    ) -> None:
        """Give every table another home lane; who is ready stays so, in the same order."""
        self.count, self._stealing, self.idle.stealing = count, stealing, stealing
        ready = sorted((unit for lane in self._lanes for unit in lane.ready), key=lambda unit: unit.ticket)
        for table in units:
            table.lane = home(table)
            self._room.move(table.account, table.lane)
            if table.shards is not None:
                table.shards.rehome(table.lane, count)
        for lane in self._lanes:
            lane.ready.clear()
        for unit in ready:
            self._lanes[unit.lane].ready.append(unit)

    @property
    def quiescent(self) -> bool:
        """Whether nothing runs, or is to run by itself."""
        return not self.ready and not self.timers.pending and not any(lane.running for lane in self._lanes)

    def retire(self, lane: Lane) -> None:
        """Its processor ends. What that was told of, or watched, or left to itself, is another's now."""
        lane.manned = False
        self.idle.wake(self.ready)
        self.idle.left_for_work()

    def wake(self, *, by_processor: bool = False) -> None:
        """Tell as many processors as units became ready, but for one that calls: it looks for work next."""
        if units := self._untold:
            self._untold = 0
            self.idle.wake(units - (by_processor and self._stealing))

    def arrange(self, unit: Unit) -> None:
        """Let a unit that neither runs nor keeps a batch go on with what it has queued."""
        if not unit.chunks:
            unit.state = UnitState.IDLE
            return
        if (unit.chunks[0].alone or unit.shards is not None) and self._stands(unit):
            return
        wait = unit.table.max_wait
        if wait <= 0 or self.pressed or unit.full(self._room.max_records, self._room.max_bytes):
            self._make_ready(unit)
        elif unit.state is not UnitState.GATHERING:
            unit.state = UnitState.GATHERING
            unit.due = unit.chunks[0].enqueued + wait
            self.set_timer(unit)

    def _make_ready(self, unit: Unit) -> None:
        unit.state = UnitState.READY
        self._untold += 1
        self._tickets += 1
        unit.ticket = self._tickets
        self._lanes[unit.lane].ready.append(unit)
        self.ready += 1

    def set_timer(self, unit: Unit) -> None:
        self.timers.add(unit)
        self.idle.timer_set(unit.due)

    def let_run(self, units: Iterable[Unit]) -> None:
        """They need not wait any longer."""
        for unit in units:
            self._make_ready(unit)

    def look_again(self) -> None:
        """Bounds or rules are others now: who gathers, or waits until fewer rows are spread, goes by them."""
        for unit in self.timers.waiting():
            unit.state = UnitState.IDLE
            self.arrange(unit)
        self._look_at_crowded()

    def next_ready(self, lane: Lane) -> Unit:
        """The head of this lane's queue, or else of another's; there is a ready unit somewhere."""
        if self._stealing and self.turns:
            return self._taken(whose_turn(self._lanes, self.ready, self._tickets))
        own = lane if lane.ready or not self._stealing else fullest(self._lanes)
        self.ready -= 1
        return own.ready.popleft()

    def _taken(self, unit: Unit) -> Unit:
        self._lanes[unit.lane].ready.remove(unit)
        self.ready -= 1
        return unit

    def cut(self, unit: Unit) -> Work:
        """Its next batch: the one that was kept, or one from its queue."""
        work = self.kept.pop(unit, None)
        if work is None:
            return cut(unit, others_wait=self.ready > 0)
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
            shard = shards.get(unit, number, self.count)
            shard.push(chunk)
            shards.records += len(chunk.messages)
            shards.bytes += chunk.bytes
            self._room.spread += chunk.bytes
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
            self._taken(unit)
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
            self._room.spread -= weight
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
