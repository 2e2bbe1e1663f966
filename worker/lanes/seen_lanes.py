"""Read-only figures about the lanes: for the status, the main thread and the fetcher."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from worker.formats.decoding import SMALL
from worker.lanes.lane import Lane, Room
from worker.lanes.schedule import Schedule
from worker.units.delivery import Delivery
from worker.units.unit import Unit, UnitState
from worker.units.work import Work


@dataclass(eq=False)
class SeenLanes:
    """Read-only. Any thread."""

    lock: threading.Lock
    lanes: Sequence[Lane]
    room: Room
    schedule: Schedule
    clock: Callable[[], float]

    @property
    def most_decoded(self) -> int:
        """The most bytes that one record may take when it is decoded."""
        return max(self.room.max_bytes, SMALL)

    def running(self) -> list[Work]:
        """Return the running batches."""
        with self.lock:
            return [lane.running for lane in self.lanes if lane.running]

    @property
    def queued(self) -> int:
        """Queued and running records of all lanes. Approximate."""
        return sum(lane.records for lane in self.lanes)

    @property
    def pressed(self) -> bool:
        """Whether a delivery waits because it does not fit."""
        return self.room.refused is not None

    @property
    def finished_records(self) -> int:
        """Records of all tables finished so far. Approximate."""
        return sum(lane.finished_records for lane in self.lanes) + self.schedule.finished_records

    def halted(self) -> list[str]:
        """Return the tables in which a change failed permanently."""
        with self.lock:
            halted = [unit for unit in self.schedule.kept if unit.state is UnitState.HALTED]
            return list(dict.fromkeys(unit.table.label for unit in halted))

    def dead_end(self) -> bool:
        """Whether a delivery waits for room that only halted tables could free."""
        with self.lock:
            return self.room.waited_for and self.schedule.quiescent


class Standing:
    """Sums up the tables that a change or an unavailable target blocks, and those with a batch that has been
    failing for long. Under the lock of `Lanes`, except `keeps_out`."""

    def __init__(self, room: Room, before: float) -> None:
        """`before`: a batch that has been failing since then, or longer, counts as blocked."""
        self.records = 0
        """Their unfinished records: queued, kept and running. With `order_by: row`, those of the blocked
        shards and the records queued behind them, without finished records that other shards hold back."""
        self._room = room
        self._before = before
        self._bytes = 0
        self._lanes: Counter[int] = Counter()  # lane -> records that count against its bound

    def add(self, unit: Unit, works: Mapping[Unit, Work]) -> None:
        """Add a table. `works`: the running and kept batches."""
        standing = [each for each in unit.members() if self._stands(each)]
        if unit not in standing and self._waits(unit, standing):
            standing.append(unit)
        if not standing:
            return
        records = size = done = 0
        for each in standing:
            records += each.records
            size += each.bytes
            if (work := works.get(each)) is not None:
                records += work.records
                size += work.bytes
                done += work.finished
        account = unit.account
        records = min(records, account.records)  # a record with parts in several shards counts once
        self.records += max(0, records - done)
        self._lanes[account.lane] += records
        self._bytes += min(size, account.bytes)

    def keeps_out(self, refused: Delivery | None) -> bool:
        """Whether the refused delivery would not fit even if all other tables were finished."""
        if refused is None:
            return False
        if self._bytes and self._bytes + refused.bytes > self._room.max_bytes:
            return True
        most = self._room.max_records
        return any(
            held and held + records > most
            for held, records in ((self._lanes[lane], new) for lane, new in refused.records.items())
        )

    def _stands(self, unit: Unit) -> bool:
        if unit.state is UnitState.HALTED:
            return True
        return unit.error is not None and (unit.blocked or unit.failing_since <= self._before)

    def _waits(self, unit: Unit, standing: Sequence[Unit]) -> bool:
        """Whether it waits for one of its blocked shards, or for another table of its next statement."""
        if unit.state is not UnitState.WAITING_FOR_OTHERS or not unit.chunks:
            return False
        barrier = unit.chunks[0].barrier
        if standing or barrier is None:
            return bool(standing)
        tables = (barrier.home, *barrier.others)
        return any(self._stands(each) for table in tables for each in table.members())
