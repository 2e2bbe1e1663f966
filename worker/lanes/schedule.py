"""When a table's next batch may start: if it is full, after `max_wait`, or when the units that it waits for
let it. Guarded by the lock of `Lanes`."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from threading import Lock

from worker.configuration import LanesRule
from worker.lanes.batch_cutting import cut, rebind, unfold
from worker.lanes.lane import Lane, Room, Timers, is_reached
from worker.lanes.parking import unpark
from worker.lanes.ready_units import IdleProcessors, Permits, ReadyUnits
from worker.units.assigned_partition import Assignment
from worker.units.chunk import Barrier, Chunk
from worker.units.sharding import ShardChunk
from worker.units.table import Table
from worker.units.unit import Shard, Unit, UnitState
from worker.units.work import Work

_OPEN_SECONDS = 1.0  # how long an open transaction waits for its rest, if `max_wait` is 0
_LONGEST_SECONDS = 60.0  # how long it waits at most, unless `max_wait` is longer


class Schedule:
    """Callers change what units contain. They then let ready units continue, and finally call `wake`."""

    def __init__(
        self, lanes: Sequence[Lane], room: Room, rule: LanesRule, lock: Lock, clock: Callable[[], float]
    ) -> None:
        self.ready = ReadyUnits(lanes, rule)
        self.timers = Timers()
        self.idle = IdleProcessors(lanes, self.timers, self.ready)
        self.permits = Permits(lock, clock, self.let_run, self.set_timer, self.wake)
        self._room = room
        self._clock = clock
        self.crowded: dict[Unit, None] = {}
        """Tables that wait for fewer rows in shards."""
        self.taken = -math.inf
        """When the lanes last took all records of a poll."""
        self.kept: dict[Unit, Work] = {}
        """Failed batches to be retried (those of halted tables: after their rule has changed)."""
        self.finished_records = 0
        """Records that finished because a partition was revoked for which they were held back."""

    def rehome(self, rule: LanesRule, home: Callable[[Unit], int], units: Iterable[Unit]) -> None:
        """Give every table another home lane."""
        self.ready.bound(rule)
        for table in units:
            table.lane = home(table)
            self._room.move(table.account, table.lane)
            if table.shards is not None:
                table.shards.rehome(table.lane, self.ready.count)
        self.ready.rehome()

    @property
    def quiescent(self) -> bool:
        """Whether nothing is running, and nothing will run by itself, or before a person's pause ends."""
        return not self.ready.or_running and all(unit.paused for unit in self.timers)

    def give_table(self, unit: Unit, table: Table) -> None:
        """Give a table other rules and handlers, and retry at once what halted or waits."""
        for member in unit.members():
            self.permits.leave(member)
            member.table = table
            if member.state in (UnitState.HALTED, UnitState.BACKOFF, UnitState.LIMITED):
                member.mended()
                self.let_run((member,))

    def wake(self, *, by_processor: bool = False) -> None:
        """Notify one processor for each unit that became ready. A calling processor counts as one."""
        if units := self.ready.untold():
            self.idle.wake(units - (by_processor and self.ready.stealing))

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
        is_open = unit.table.whole and unit.is_open
        hurries = not is_open and (wait <= 0 or room.refused is not None)
        if hurries or unit.full(room.max_records, room.max_bytes):
            self._make_ready(unit)
        elif unit.state is not UnitState.GATHERING:
            unit.state = UnitState.GATHERING
            unit.gathers_since = since = self._clock() if is_open else unit.chunks[0].enqueued
            self.set_timer(unit, since + (wait or _OPEN_SECONDS))

    def _make_ready(self, unit: Unit) -> None:
        if unit.state is not UnitState.IDLE:  # not for most units: this saves time
            self.timers.cancel(unit)
        unit.state = UnitState.READY
        self.ready.add(unit)

    def set_timer(self, unit: Unit, due: float) -> None:
        self.timers.set(unit, due)
        self.idle.timer_set(due)

    def hurry(self) -> None:
        """No unit waits any longer for a fuller batch. If nothing frees room, none waits long for the rest of
        a transaction."""
        waiting = self.timers.gathering()
        self.let_run(unit for unit in waiting if not unit.is_open)
        soon = self._clock() + _OPEN_SECONDS
        if waiting and not self._frees_room():
            for unit in waiting:
                if unit.state is UnitState.GATHERING and unit.due > soon:
                    self.set_timer(unit, soon)
        self.wake()

    def look_for_ends(self) -> None:
        """Let the units continue that waited for the end of a transaction, if it is known now."""
        for unit in self.timers.gathering():
            if unit.table.whole:
                self.arrange(unit)

    def ran_out(self, now: float) -> None:
        """Make the units ready whose timers are due. The rest of an open transaction may be in a
        delivery that has waited for room all the time. It waits on while others may free this room."""
        for unit in self.timers.due(now):
            wait = unit.table.max_wait or _OPEN_SECONDS
            if (
                unit.state is UnitState.GATHERING
                and unit.is_open
                and self.taken + wait <= unit.due
                and now < unit.gathers_since + max(wait, _LONGEST_SECONDS)
                and self._frees_room()
            ):
                self.set_timer(unit, now + wait)
            else:
                self._make_ready(unit)

    def _frees_room(self) -> bool:
        """Whether a batch that runs, or waits without an error, may free room that the refused delivery
        needs. A call that lasts long may never end."""
        if self._room.refused is None:
            return False
        lanes, begun = self._room.lacking(self._room.refused), self._clock() - _LONGEST_SECONDS
        kept = (unit for unit in self.kept if unit.error is None and unit.account.lane in lanes)
        return self.ready.or_running_in(lanes, begun) or any(kept)

    def let_run(self, units: Iterable[Unit]) -> None:
        """Make these units ready without further waiting."""
        for unit in units:
            self._make_ready(unit)

    def look_again(self) -> None:
        """Check the units that gather, or wait for fewer rows in shards, by the new bounds or rules."""
        for unit in self.timers.gathering():
            self._again(unit)
        self._look_at_crowded()
        self.wake()

    def cut(self, unit: Unit) -> Work:
        """Return the unit's next batch: the kept one, or one cut from its queue."""
        work = self.kept.pop(unit, None)
        if work is not None and not work.is_bound and not rebind(work):
            self._room.let_go(unit, unfold(work))
            work = None
        if work is None:
            work = cut(unit, (self._room.max_records, self._room.max_bytes), others_wait=bool(self.ready))
        if work.parked:
            unpark(self._room, work)
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
        self._room.let_go(unit, [chunk for chunk in chunks if chunk.assignment.closed])

    def settle(self, unit: Unit, work: Work) -> None:
        """Continue after a finished batch of a shard, or of a record that stood alone."""
        barriers = self._room.let_go(unit, work.chunks)
        if unit.shards is not None:
            unit.shards.key_columns = None
        self.arrange(unit)
        self._pass(barriers)
        self.let_others_go_on(unit)

    def unfold(self, unit: Unit) -> None:
        """Turn a kept batch back into queued records, because some of its partitions were revoked."""
        barriers = self._room.let_go(unit, self._unfold(unit))
        self._again(unit)
        self._pass(barriers)
        self.let_others_go_on(unit)

    def _unfold(self, unit: Unit) -> list[Chunk]:
        self.permits.hold(work := self.kept.pop(unit))
        return unfold(work)

    def drop(self, units: Iterable[Unit], gone: set[Assignment]) -> None:
        """Forget the records of revoked partitions in the units and their shards."""
        barriers: list[Barrier[Unit]] = []
        for table in units:
            for unit in table.members():
                dropped = unit.drop(gone)
                kept = self.kept.get(unit)
                if kept is not None and kept.withdrawn:
                    dropped += self._unfold(unit)
                elif not dropped:
                    continue
                barriers += self._room.let_go(unit, dropped)
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
            waits = shards is not None and not shards.through
        elif shards is None:
            return False
        elif waits := (
            shards.order.held_back >= self._room.max_records
            or (unit.parked > 0 < shards.records and unit.account.records >= self._room.max_records)
            or not self._room.may_spread(unit)
        ):
            self.crowded[unit] = None
        if waits or front.alone:
            unit.state = UnitState.WAITING_FOR_OTHERS
        if waits:  # for its shards, which must not wait for fuller batches
            self.let_run(member for member in unit.members() if member.state is UnitState.GATHERING)
            return True
        if front.barrier is not None:
            if not is_reached(front.barrier):
                return True
            unit = front.barrier.home
        self._make_ready(unit)
        return True

    def _again(self, unit: Unit) -> None:
        """Arrange a unit again that lost some of its records."""
        if unit.state is UnitState.READY:
            self.ready.remove(unit)
        self.timers.cancel(unit)
        unit.state = UnitState.IDLE
        unit.mended()
        self.arrange(unit)

    def _pass(self, barriers: Iterable[Barrier[Unit]]) -> None:
        """Let the tables continue that wait at these finished barriers."""
        for unit in (other for barrier in barriers for other in barrier.others):
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
        if self.crowded and self._room.may_spread():
            self._look_at_crowded()

    def made_room(self) -> None:
        """Records were parked: let those continue that waited for their room."""
        self._room.look()
        self._look_at_crowded()
        self.wake()

    def _look_at_crowded(self) -> None:
        crowded, self.crowded = self.crowded, {}
        for table in crowded:
            if table.state is UnitState.WAITING_FOR_OTHERS:
                self.arrange(table)
