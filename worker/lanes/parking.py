"""Records of units that stand still, parked in files: which ones, and what they count against the bounds.

Functions need the lock of `Lanes`. Methods take it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from handlers import Change
from worker.lanes.lane import Room
from worker.units.assigned_partition import Assignment
from worker.units.chunk import Chunk
from worker.units.parked import ParkedChanges, ParkedRecords
from worker.units.unit import Unit, UnitState
from worker.units.work import Work

_SHARE = 10
"""Units that stand still may keep a tenth of each bound in memory, all together: a quick start when they
continue."""


def stands(unit: Unit) -> bool:
    """Whether its batch failed and waits: it retries, its target is down, or it is halted."""
    return unit.error is not None or unit.state is UnitState.HALTED


def is_late(room: Room, unit: Unit) -> bool:
    """Whether it stands still, or its new records would wait in memory for many parked ones."""
    many = unit.records > room.max_records or unit.bytes > room.max_bytes // _SHARE
    return stands(unit) or (unit.parked > 0 and many)


def standing(table: Unit, is_one: Callable[[Unit], bool] = stands) -> list[Unit]:
    """Return those of the table's own unit and shards that stand still (`is_one`), or wait for one that does.
    That may be a shard of the table, or another table of its next statement."""
    waits = table.state is UnitState.WAITING_FOR_OTHERS
    if table.shards is None and not waits:  # most tables
        return [table] if is_one(table) else []
    found = [unit for unit in table.members() if is_one(unit)]
    if waits and table not in found and (found or _waits_for(table, {table}, is_one)):
        found.append(table)
    return found


def _waits_for(table: Unit, known: set[Unit], is_one: Callable[[Unit], bool]) -> bool:
    """Whether another table of its next statement stands still, or waits for one that does."""
    barrier = table.chunks[0].barrier if table.chunks else None
    if table.state is not UnitState.WAITING_FOR_OTHERS or barrier is None:
        return False
    others = [other for other in (barrier.home, *barrier.others) if other not in known]
    known.update(others)
    return any(any(map(is_one, other.members())) or _waits_for(other, known, is_one) for other in others)


def in_memory(unit: Unit) -> list[Chunk]:
    """Return the queued chunks that are not parked. Does not look through the parked ones between them."""
    first: list[Chunk] = []
    last: list[Chunk] = []
    left = unit.records - unit.parked
    for found, chunks in ((first, unit.chunks), (last, reversed(unit.chunks))):
        for chunk in chunks:
            if left <= 0 or (chunk.parked and found is first):
                break
            if chunk.messages and not chunk.parked:
                found.append(chunk)
                left -= len(chunk.messages)
    return first + last[::-1]


@dataclass(frozen=True, slots=True)
class Parkable:
    """What a standing unit has in memory beyond its share."""

    unit: Unit
    work: Work | None
    """The batch that it keeps for a retry. None: it stays in memory."""
    chunks: Sequence[Chunk]
    """Of its queue."""


@dataclass(frozen=True, slots=True)
class Parked:
    """What was written of a `Parkable`."""

    unit: Unit
    work: Work | None
    changes: tuple[Sequence[Change] | None, ParkedChanges | None]
    """Those of the kept batch that were written, and where they are. It may have others by now."""
    chunks: Sequence[tuple[Chunk, ParkedRecords, ParkedChanges | None]]
    """Of the kept batch and the queue."""
    error: OSError | None
    """Why that is not all."""


@dataclass(frozen=True, eq=False)
class ParkedUnits:
    """Moves what standing units have from memory to files. Any thread."""

    lock: threading.Lock
    """The lock of `Lanes`."""
    room: Room
    kept: Mapping[Unit, Work]
    """Batches that are kept for a retry."""
    made_room: Callable[[], None]

    def to_park(self, tables: Iterable[Unit]) -> list[Parkable]:
        """Return what standing units have in memory beyond what they may keep there, all together. While a
        delivery waits for room, they may keep nothing, and nor may those with many parked records before."""
        with self.lock:
            room, records = self.room, dict[int, int]()
            most, size = room.max_records // _SHARE, room.max_bytes // _SHARE
            is_one: Callable[[Unit], bool] = stands
            if room.refused is not None:
                most, size, is_one = 0, 0, partial(is_late, room)
            found = []
            for unit in (unit for table in tables for unit in standing(table, is_one)):
                lane = unit.account.lane
                left = records.get(lane, most)
                chunks: list[Chunk] = []
                work = self.kept.get(unit)
                if work is not None and all(chunk.parked for chunk in work.chunks):
                    work = None
                if work is not None:
                    # To write a batch that is soon retried only pays if somebody needs its room.
                    pays = unit.state is UnitState.HALTED or room.is_short(lane)
                    if not pays or (work.records <= left and work.bytes <= size):
                        left, size, work = left - work.records, size - work.bytes, None
                for chunk in in_memory(unit):
                    if not chunks and len(chunk.messages) <= left and chunk.bytes <= size:
                        left, size = left - len(chunk.messages), size - chunk.bytes
                    else:
                        chunks.append(chunk)
                records[lane] = left
                if chunks or work is not None:
                    found.append(Parkable(unit, work, chunks))
            return found

    def in_files(self, tables: Iterable[Unit]) -> set[Assignment]:
        """Return the partitions of parked records in these tables' queues."""
        with self.lock:
            found = (unit for table in tables for unit in table.members() if unit.parked)
            return {chunk.assignment for unit in found for chunk in unit.chunks}

    def park(self, parked: Parked) -> None:
        """Keep these records in files, if they are still queued or kept. They no longer count against the
        bounds."""
        with self.lock:
            room, unit, work = self.room, parked.unit, parked.work
            queued = set(map(id, in_memory(unit)))
            own = set[int]()
            if work is not None and self.kept.get(unit) is work:
                own = set(map(id, work.chunks))
                work.park(*parked.changes)
            new = set[int]()
            for chunk, records, changes in parked.chunks:
                in_queue = id(chunk) in queued
                if (in_queue or id(chunk) in own) and not chunk.parked:
                    room.count_spread(unit, -chunk.bytes)
                    room.release(unit, *chunk.park(records, changes))
                    if in_queue:
                        unit.parked += len(records)
                        new.add(id(chunk))
            _join(unit.chunks, new)
            self.made_room()


def _join(chunks: deque[Chunk], new: Collection[int]) -> None:
    """Join the `new` parked chunks at the queue's end (by their `id`) with those before them."""
    last = list[Chunk]()
    while chunks and (not chunks[-1].parked or id(chunks[-1]) in new):
        last.append(chunks.pop())
    for chunk in reversed(last):
        if not chunks or not chunks[-1].join(chunk):
            chunks.append(chunk)


def unpark(room: Room, work: Work) -> None:
    """Count the batch's parked records against the bounds again."""
    for chunk in work.chunks:
        if chunk.parked:
            records, size = chunk.unpark()
            room.release(work.unit, -records, -size)
            room.count_spread(work.unit, chunk.bytes)
