"""Read-only figures about the lanes, for the status, the main thread and the fetcher."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from worker.formats.decoding import SMALL
from worker.lanes.lane import Lane, Room
from worker.lanes.schedule import Schedule
from worker.units.unit import UnitState
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
