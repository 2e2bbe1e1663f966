"""Read-only figures about the lanes: for the status, the main thread and the fetcher."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from worker.formats.decoding import SMALL
from worker.lanes.lane import Lane, Room
from worker.lanes.parking import in_memory, standing
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
    def crowded(self) -> bool:
        """Whether a table in row order waits until others of its rows are parked or finished. Approximate."""
        return bool(self.schedule.crowded)

    @property
    def retries(self) -> bool:
        """Whether a batch is kept for its retry, or is being retried. Approximate."""
        running = (lane.running for lane in self.lanes)
        return bool(self.schedule.kept) or any(work and work.unit.error is not None for work in running)

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
    """Sums up the tables that stand still, and those that wait for them. Under the lock of `Lanes`, except
    `keeps_out`."""

    def __init__(self, room: Room) -> None:
        self.tables = 0
        self.records = 0
        """Their unfinished records: queued, kept and running. With `order_by: row`, those of the standing
        shards and the records queued behind them, without finished records that other shards hold back."""
        self.parked = 0
        """Records in files, also of tables that continue with them."""
        self.parked_since = math.inf
        """When the oldest of these was queued."""
        self._room = room
        self._bytes = 0
        self._lanes: Counter[int] = Counter()  # lane -> records that count against its bound

    def add(self, table: Unit, works: Mapping[Unit, Work]) -> None:
        """Add a table. `works`: the running and kept batches."""
        for unit in (each for each in table.members() if each.parked):
            self.parked += unit.parked
            first = next(chunk for chunk in unit.chunks if chunk.parked)
            self.parked_since = min(self.parked_since, first.enqueued)
        units = standing(table)
        if not units:
            return
        self.tables += 1
        records = records_parked = size = done = 0
        for unit in units:
            work = works.get(unit)
            records += unit.records + (work.records if work else 0)
            done += work.finished if work else 0
            kept = work.chunks if work else ()
            parked = [chunk for chunk in kept if chunk.parked]
            kept_parked = sum(len(chunk.messages) for chunk in parked)
            self.parked += kept_parked
            records_parked += unit.parked + kept_parked
            self.parked_since = min(self.parked_since, *(chunk.enqueued for chunk in parked), math.inf)
            size += sum(chunk.bytes for chunk in (*kept, *in_memory(unit)) if not chunk.parked)
        account = table.account
        # A record with parts in several shards counts once.
        in_lane = min(records - records_parked, account.records)
        self.records += max(0, records_parked + in_lane - done)
        self._lanes[account.lane] += in_lane
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
