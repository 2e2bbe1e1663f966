"""Parks the records of tables that stand still in files, so that they take no room of other tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

from handlers.logs import get_logger
from worker.configuration import Configuration
from worker.lanes.lanes import Lanes
from worker.lanes.parking import Parkable, Parked
from worker.partitions.pausing import Pauses
from worker.partitions.stage import Stage
from worker.units.assigned_partition import Assignment
from worker.units.parked import ParkedChanges, ParkedRecords
from worker.units.parking_files import ParkingLot
from worker.units.unit import Unit, UnitState

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


class Parking(Stage):
    """Writes queued records of standing tables to files. While the files have their most bytes, it pauses the
    partitions with such records."""

    def __init__(
        self,
        lot: ParkingLot,
        lanes: Lanes,
        units: Callable[[], Iterable[Unit]],
        pauses: Pauses,
        *,
        most: int,
    ) -> None:
        """`units`: all tables. `most`: bytes of the files."""
        self._lot = lot
        self._lanes = lanes
        self._units = units
        self._pauses = pauses
        self._most = most
        self._next = self._again = 0.0  # times: of the next look, and of the next try after an error

    def adopt(self, now: Configuration) -> None:
        self._most = now.lanes.parked

    def between_polls(self, now: float) -> None:
        lot, lanes, paused = self._lot, self._lanes, self._pauses.of("parked")
        if lot.left:
            lot.tidy()
        if not lanes.seen.retries and not paused:
            return  # nothing stands still: this is the only cost
        pressed, due = lanes.seen.pressed, now >= self._next
        if not due and not pressed:
            return
        # Only this thread queues records, so an idle table stays idle meanwhile.
        units = [
            unit for unit in self._units() if unit.state is not UnitState.IDLE or unit.shards is not None
        ]
        waiting = lanes.to_park(units)
        # What is in memory is also written beyond the bound: else it would stop all other partitions.
        if waiting and now >= self._again and (pressed or not self._is_full(paused)):
            self._park(waiting, now, beyond=pressed)
        beyond: set[Assignment] = set()
        is_full = self._is_full(paused)
        if is_full or now < self._again:
            beyond = {chunk.assignment for each in waiting for chunk in each.chunks}
            beyond |= lanes.with_parked(units) if due else paused
        if due:
            self._next = now + (_LOOK_SECONDS if not is_full else _LOOK_IF_FULL_SECONDS)
        if beyond != paused:
            if is_full:
                self._tell(beyond - paused)
            self._pauses.single("parked", beyond)

    def _is_full(self, paused: Collection[Assignment]) -> bool:
        """Whether the files, or what memory keeps of them, take all that they may."""
        taken = max(self._lot.bytes / self._most, self._lot.memory / self._lanes.room.max_bytes)
        return taken >= (1 - 1 / _SLACK if paused else 1)

    def _park(self, waiting: list[Parkable], now: float, *, beyond: bool) -> None:
        """Write these. `beyond`: the bound."""
        lot, begin, end = self._lot, self._lot.bytes, time.monotonic() + _MOST_SECONDS
        for each in waiting:
            if lot.bytes - begin >= _AT_ONCE or time.monotonic() > end:
                break
            if not beyond and self._is_full(()):
                break
            try:
                self._lanes.park(written(lot, each))
            except OSError as error:
                self._again = now + _AGAIN_SECONDS
                log.error("parking_failed", folder=str(lot.folder), error=str(error), hint=_HINT)
                break

    def _tell(self, beyond: Collection[Assignment]) -> None:
        for assignment in beyond:
            log.warning(
                "parking_full",
                partition=str(assignment.partition),
                parked_bytes=self._lot.bytes,
                max_bytes=self._most,
                hint="the partition is not read until a standing table continues: see binlane status",
            )

    def revoked(self, gone: Collection[Assignment]) -> None:
        self._pauses.single("parked", self._pauses.of("parked").difference(gone))


def written(lot: ParkingLot, what: Parkable) -> Parked:
    """Write at least the batch that the unit keeps. The queue's first chunks stay in memory if it is too
    long. Raises OSError."""
    unit, work, begin = what.unit, what.work, lot.bytes
    changes, in_file = None if work is None or work.lent else work.changes, None
    if isinstance(changes, ParkedChanges):  # given back without a call
        in_file = changes
    elif work is not None and changes is not None:
        known = work.in_file
        try:
            in_file = known[1] if known is not None and known[0] is changes else lot.changes(unit, changes)
        except OSError:
            raise
        except Exception:  # it runs again by now, and its handler modifies the rows
            work = changes = None
    parked = []
    for chunk in (*(() if work is None else work.chunks), *reversed(what.chunks)):
        if lot.bytes - begin >= _AT_ONCE and chunk in what.chunks:
            break
        if isinstance(chunk.messages, ParkedRecords):
            own = chunk.changes if isinstance(chunk.changes, ParkedChanges) else None
            parked.append((chunk, chunk.messages, own))
            continue
        if chunk.in_file is not None:
            parked.append((chunk, *chunk.in_file))
            continue
        records = lot.records(unit, chunk.assignment.partition, chunk.messages)
        own = None if chunk.changes is None else lot.changes(unit, chunk.changes)
        parked.append((chunk, records, own))
    return Parked(unit, work, (changes, in_file), parked)
