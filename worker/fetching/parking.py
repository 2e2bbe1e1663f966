"""Parks the records of tables that stand still in files, so that they take no room of other tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from handlers import Change
from handlers.logs import get_logger
from worker.configuration import Configuration
from worker.lanes.lanes import Lanes
from worker.lanes.parking import Parkable, Parked
from worker.partitions.pausing import Pauses
from worker.partitions.stage import Stage
from worker.units.assigned_partition import Assignment
from worker.units.chunk import Chunk
from worker.units.parked import ParkedChanges, ParkedRecords
from worker.units.parking_files import ParkingLot
from worker.units.unit import Unit, UnitState
from worker.units.work import Work

log = get_logger("fetcher")

_LOOK_SECONDS, _LOOK_IF_FULL_SECONDS = 0.1, 1.0
_AT_ONCE = 16 << 20
"""Bytes that are written between two polls."""
_MOST_SECONDS = 0.5
"""After that, the next poll comes first: each of thousands of tables has a file of its own."""
_AGAIN_SECONDS = 10.0
"""The time between an error and the next try."""
_HINT = (
    "check the disk of checkpoint.directory; the partitions of tables that stand still are not read meanwhile"
)
_SLACK = 10
"""Partitions are resumed when a tenth of the bound is free."""


@dataclass(eq=False)
class Parking(Stage):
    """Writes queued records of standing tables to files. While the files have their most bytes, it pauses the
    partitions with such records."""

    lot: ParkingLot
    lanes: Lanes
    units: Callable[[], Iterable[Unit]]
    """Returns all tables."""
    pauses: Pauses
    most: int
    """Bytes of the files."""

    def __post_init__(self) -> None:
        self._next = self._again = 0.0  # times: of the next look, and of the next try after an error

    def adopt(self, now: Configuration) -> None:
        self.most = now.lanes.parked

    def between_polls(self, now: float) -> None:
        lot, lanes, paused = self.lot, self.lanes, self.pauses.of("parked")
        if lot.left:
            lot.tidy()
        if not lanes.seen.retries and not paused and not lot.bytes:
            return  # nothing stands still or is parked: this is the only cost
        pressed, due = lanes.seen.pressed, now >= self._next
        if not due and not pressed:
            return
        # Only this thread queues records, so an idle table stays idle meanwhile.
        units = [unit for unit in self.units() if unit.state is not UnitState.IDLE or unit.shards is not None]
        waiting = lanes.parked.to_park(units)
        # What is in memory is also written beyond the bound: else it would stop all other partitions.
        beyond_bound = pressed or lanes.seen.crowded
        if waiting and now >= self._again and (beyond_bound or not self._is_full(paused)):
            self._park(waiting, now, beyond=beyond_bound)
        beyond: set[Assignment] = set()
        is_full = self._is_full(paused)
        if is_full or now < self._again:
            beyond = {chunk.assignment for each in waiting for chunk in each.chunks}
            beyond |= lanes.parked.in_files(units) if due else paused
        if due:
            self._next = now + (_LOOK_SECONDS if not is_full else _LOOK_IF_FULL_SECONDS)
        if beyond != paused:
            if is_full:
                self._tell(beyond - paused)
            self.pauses.single("parked", beyond)

    def _is_full(self, paused: Collection[Assignment]) -> bool:
        """Whether the files, or what memory keeps of them, take all that they may."""
        taken = max(self.lot.bytes / self.most, self.lot.memory / self.lanes.room.max_bytes)
        return taken >= (1 - 1 / _SLACK if paused else 1)

    def _park(self, waiting: list[Parkable], now: float, *, beyond: bool) -> None:
        """Write these. `beyond`: the bound."""
        lot, begin, end = self.lot, self.lot.bytes, time.monotonic() + _MOST_SECONDS
        for each in waiting:
            if lot.bytes - begin >= _AT_ONCE or time.monotonic() > end:
                break
            if not beyond and self._is_full(()):
                break
            parked = written(lot, each)
            self.lanes.parked.park(parked)
            if parked.error is not None:
                self._again = now + _AGAIN_SECONDS
                log.error("parking_failed", folder=str(lot.folder), error=str(parked.error), hint=_HINT)
                break

    def _tell(self, beyond: Collection[Assignment]) -> None:
        for partition in sorted(each.partition for each in beyond):
            log.warning(
                "parking_full",
                partition=str(partition),
                parked_bytes=self.lot.bytes,
                max_bytes=self.most,
                hint="the partition is not read until a standing table continues: see binlane status",
            )

    def revoked(self, gone: Collection[Assignment]) -> None:
        self.pauses.single("parked", self.pauses.of("parked").difference(gone))


def written(lot: ParkingLot, what: Parkable) -> Parked:
    """Write the batch that the unit keeps, and the end of its queue: no more than goes between two polls."""
    unit, work, error = what.unit, what.work, None
    changes: tuple[Sequence[Change] | None, ParkedChanges | None] = None, None
    parked = list[tuple[Chunk, ParkedRecords, ParkedChanges | None]]()
    first, size = len(what.chunks), 0
    while first and size < _AT_ONCE:
        first -= 1
        size += what.chunks[first].bytes
    try:
        if work is not None and not work.lent and work.decoded_by is None:
            try:
                changes = work.changes, _changes(lot, unit, work)
            except OSError:
                raise
            except Exception:  # it runs again by now, and its handler modifies the rows
                work = None
        for chunk in (*(() if work is None else work.chunks), *what.chunks[first:]):
            if (found := _chunk(lot, unit, chunk)) is not None:
                parked.append((chunk, *found))
    except OSError as raised:
        error = raised.with_traceback(None)  # its frames would keep the files
    return Parked(unit, work if parked else None, changes, parked, error)


def _changes(lot: ParkingLot, unit: Unit, work: Work) -> ParkedChanges | None:
    changes, known = work.changes, work.in_file
    if changes is None or isinstance(changes, ParkedChanges):  # given back without a call
        return changes
    return known[1] if known is not None and known[0] is changes else ParkedChanges.write(lot, unit, changes)


def _chunk(lot: ParkingLot, unit: Unit, chunk: Chunk) -> tuple[ParkedRecords, ParkedChanges | None] | None:
    """Raises OSError. None: it cannot be written, for example because its rows are nested too deeply."""
    records, changes = chunk.messages, chunk.changes
    if isinstance(records, ParkedRecords):
        return records, changes if isinstance(changes, ParkedChanges) else None
    if chunk.in_file is not None:
        return chunk.in_file
    try:
        in_file = None if changes is None else ParkedChanges.write(lot, unit, changes)
        return ParkedRecords.write(lot, unit, chunk.assignment.partition, records), in_file
    except OSError:
        raise
    except Exception:  # it stays in memory, and the fetcher continues
        return None
