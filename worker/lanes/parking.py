"""Records of units that stand still, parked in files: which ones, and what they count against the bounds.

All functions need the lock of `Lanes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from handlers import Change
from worker.lanes.lane import Room
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


def standing(table: Unit) -> list[Unit]:
    """Return those of the table's own unit and shards that stand still, or wait for one that does. That may
    be a shard of the table, or another table of its next statement."""
    waits = table.state is UnitState.WAITING_FOR_OTHERS
    if table.shards is None and not waits:  # most tables
        return [table] if stands(table) else []
    found = [unit for unit in table.members() if stands(unit)]
    if waits and (found or _waits_for_standing(table, {table})):
        found.append(table)
    return found


def _waits_for_standing(table: Unit, known: set[Unit]) -> bool:
    """Whether another table of its next statement stands still, or waits for one that does."""
    barrier = table.chunks[0].barrier if table.chunks else None
    if table.state is not UnitState.WAITING_FOR_OTHERS or barrier is None:
        return False
    others = [other for other in (barrier.home, *barrier.others) if other not in known]
    known.update(others)
    return any(any(map(stands, other.members())) or _waits_for_standing(other, known) for other in others)


def in_memory(unit: Unit) -> list[Chunk]:
    """Return the queued chunks that are not parked. Does not look through all the parked ones: there may be
    a million between the first and the last of these."""
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


def to_park(room: Room, tables: Iterable[Unit], kept: Mapping[Unit, Work]) -> list[Parkable]:
    """Return what standing units have in memory beyond what they may keep there, all together. While a
    delivery waits for room, they may keep nothing."""
    records = dict[int, int]()
    most, size = room.max_records // _SHARE, room.max_bytes // _SHARE
    if room.refused is not None:
        most = size = 0
    found = []
    for unit in (unit for table in tables for unit in standing(table)):
        lane = unit.account.lane
        left = records.get(lane, most)
        chunks: list[Chunk] = []
        work = kept.get(unit)
        if work is not None and all(chunk.parked for chunk in work.chunks):
            work = None
        if work is not None:
            # To write a batch that is soon retried only pays if somebody needs its room.
            stays = unit.state is not UnitState.HALTED and room.refused is None and not room.exceeded(lane)
            if stays or (work.records <= left and work.bytes <= size):
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


def park(room: Room, kept: Mapping[Unit, Work], parked: Parked) -> None:
    """Keep these records in files, if they are still queued or kept. They no longer count against the
    bounds."""
    unit, work = parked.unit, parked.work
    queued = set(map(id, in_memory(unit)))
    own = set[int]()
    if work is not None and kept.get(unit) is work:
        own = set(map(id, work.chunks))
        work.park(*parked.changes)
    for chunk, records, changes in parked.chunks:
        in_queue = id(chunk) in queued
        if (in_queue or id(chunk) in own) and not chunk.parked:
            room.count_spread(unit, -chunk.bytes)
            room.release(unit, *chunk.park(records, changes))
            unit.parked += len(records) if in_queue else 0
    room.look()


def unpark(room: Room, work: Work) -> None:
    """Count the batch's parked records against the bounds again."""
    for chunk in work.chunks:
        if chunk.parked:
            records, size = chunk.unpark()
            room.release(work.unit, -records, -size)
            room.count_spread(work.unit, chunk.bytes)
            work.parked = True
