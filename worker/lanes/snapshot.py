"""A snapshot of lanes and tables at one moment, for reports, for any number of tables."""

from __future__ import annotations

import heapq
import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from offsets.types import TopicPartition
from worker.lanes.lane import Lane
from worker.lanes.parking import in_memory
from worker.lanes.seen_lanes import SeenLanes, Standing
from worker.observing.status import LaneStatus, TableState
from worker.units.chunk import Chunk, offset_at
from worker.units.unit import Unit, UnitState
from worker.units.work import Work

_STATES: dict[UnitState, TableState] = {
    UnitState.IDLE: "idle",
    UnitState.GATHERING: "queued",
    UnitState.WAITING_FOR_OTHERS: "queued",
    UnitState.READY: "queued",
    UnitState.RUNNING: "running",
    UnitState.BACKOFF: "retrying",
    UnitState.LIMITED: "queued",
    UnitState.HALTED: "blocked",
}
_LOUDEST: tuple[TableState, ...] = ("blocked", "retrying", "paused", "running", "queued", "idle")
"""The state of a table with shards is the first of these that one of its shards has."""

_AT_ONCE = 500
"""The number of parts of tables that are copied under the lock at a time: about 0.5 ms."""
_BREATH_SECONDS = 0.0002
"""A pause in which waiting threads get the lock, because releasing it does not hand it over."""


class Part(NamedTuple):
    """A table's own unit, or one of its shards."""

    state: TableState
    error: str | None
    records: int
    """Records that are queued, or kept to be retried."""
    failed_batches: int
    work: Work | None
    """The batch that it runs or keeps."""
    chunks: tuple[Chunk, ...]
    """The chunks that are queued after that batch."""

    def held(self) -> list[Chunk]:
        """Return the unfinished chunks of all that."""
        return [*(self.work.unfinished_chunks() if self.work else ()), *self.chunks]


class TableView(NamedTuple):
    unit: Unit
    parts: Sequence[Part]
    finished_records: int
    failed_batches: int

    @property
    def state(self) -> TableState:
        return min((part.state for part in self.parts), key=_LOUDEST.index)

    def stands_at(self) -> tuple[TopicPartition, int] | None:
        """Return the first record with which one of its batches will be retried. Approximate."""
        for part in self.parts:
            if part.work is None or part.error is None:
                continue
            left = min(part.work.stands_at(), default=-1)
            for chunk in part.work.chunks if left >= 0 else ():
                if left < len(chunk.messages):
                    return chunk.assignment.partition, offset_at(chunk.messages, left)
                left -= len(chunk.messages)
        return None


class LanesView(NamedTuple):
    lanes: list[LaneStatus]
    tables: list[TableView]
    """The requested number of tables. If there are more: first those in trouble, then the busy ones, then the
    most recently used."""
    finished: list[tuple[str, int]]
    """(label, finished records) of each table that ever had a record."""
    standing: Standing
    """The tables that stand still, shown or not."""
    halted: int
    """How many tables are halted, because a change failed permanently."""
    target_down: int
    """How many others wait for their target."""
    further: list[Chunk]
    """Chunks of busy tables that are not shown."""
    held_up: bool
    """Whether a delivery waits for room that only standing tables could free."""


def snapshot(seen: SeenLanes, units: Sequence[Unit], most: int) -> LanesView:
    """Return the present lanes and at most `most` tables. Any thread.

    Each table is copied at one moment, and all busy tables at the same moment unless they are
    hundreds. The lock of `Lanes` is then taken for some of them at a time."""
    lanes, kept, now = seen.lanes, seen.schedule.kept, seen.clock()
    count = seen.schedule.ready.count
    standing = Standing(seen.room)
    idle: list[Unit] = []
    busy: list[Unit] = []
    for unit in units:
        (idle if unit.at_rest else busy).append(unit)
    states = {unit: _state_of(unit) for unit in busy}
    shown, rest = busy, []
    if len(units) > most:
        ranked = sorted(busy, key=lambda unit: (_LOUDEST.index(states[unit]), -unit.records))
        shown, rest = ranked[:most], ranked[most:]
    rows: dict[Unit, TableView] = {}
    finished: dict[Unit, int] = {}
    waiting = deque([*shown, *(unit for unit in rest if _is_looked_into(unit))])
    seen_lanes: list[LaneStatus] = []
    works: dict[Unit, Work] = {}
    while True:
        with seen.lock:
            works = _works(lanes, kept)
            if not seen_lanes:
                shown_lanes = [lane for lane in lanes if lane.number < count or lane.running]
                full = () if seen.room.refused is None else seen.room.lacking(seen.room.refused)
                seen_lanes = [_lane(lane, now, lane.number in full) for lane in shown_lanes]
            room = _AT_ONCE
            while waiting and room > 0:
                unit = waiting.popleft()
                finished[unit] = unit.finished_in_all
                room -= len(unit.members())
                standing.add(unit, works)
                if len(rows) < len(shown):
                    rows[unit] = _table(unit, works, kept)
                    room -= sum(len(part.chunks) for part in rows[unit].parts) // 100
        if not waiting:
            break
        time.sleep(_BREATH_SECONDS)
    further = [chunk for unit in rest for chunk in _chunks(unit, works)]
    for unit in idle:
        finished[unit] = unit.finished_in_all
    if len(units) <= most:  # in the order in which they first appeared
        chosen: Iterable[Unit] = units
    else:
        chosen = [*shown, *heapq.nlargest(most - len(shown), idle, key=lambda unit: unit.used)]
    return LanesView(
        seen_lanes,
        [rows[unit] if unit in rows else _idle(unit) for unit in chosen],
        [
            (unit.table.label, records)
            for unit in units
            if (records := finished.get(unit, unit.finished_records)) or _has_records(unit)
        ],
        standing,
        sum(unit.halted for unit in busy),
        sum(states[unit] == "blocked" and not unit.halted for unit in busy),
        further,
        standing.keeps_out(seen.room.refused),
    )


def _works(lanes: Iterable[Lane], kept: Mapping[Unit, Work]) -> dict[Unit, Work]:
    """The batches that run or will be retried. Under the lock."""
    return {**kept, **{lane.running.unit: lane.running for lane in lanes if lane.running}}


def glance(seen: SeenLanes, units: Iterable[Unit]) -> tuple[frozenset[str], list[Chunk]]:
    """Return the labels of blocked tables, and the unfinished chunks. Some chunks may occur twice, and a
    batch that was taken and put back meanwhile may be missing."""
    with seen.lock:
        works = _works(seen.lanes, seen.schedule.kept)
    busy = [unit for unit in units if not unit.at_rest]
    held = [chunk for unit in busy for chunk in _chunks(unit, works)]
    with seen.lock:  # after the queues: this includes what left a queue meanwhile
        works = _works(seen.lanes, seen.schedule.kept)
    held += [chunk for work in works.values() for chunk in work.unfinished_chunks()]
    return frozenset(unit.table.label for unit in busy if _state_of(unit) == "blocked"), held


def _lane(lane: Lane, now: float, waited_for: bool) -> LaneStatus:
    label, seconds, left = None, None, 0.0
    if lane.running is not None:  # it may have started after `now`
        label, seconds = lane.running.unit.table.label, max(0.0, now - lane.since)
        whole = lane.running.unit.turns.seconds(lane.running.records)
        left = whole - seconds if seconds <= whole < math.inf else seconds
    return LaneStatus(
        lane=lane.number,
        queued_records=lane.records,
        queued_bytes=lane.bytes,
        running_table=label,
        running_seconds=None if seconds is None else round(seconds, 3),
        busy_seconds=lane.busy_seconds + (seconds or 0.0),
        offers=dict(lane.offers),
        batches=dict(lane.batches),
        waited_for=waited_for,
        drain_seconds=round(left, 3),
    )


def _table(unit: Unit, works: Mapping[Unit, Work], kept: Mapping[Unit, Work]) -> TableView:
    parts = [
        Part(_state(each), each.error, _held(each, kept), each.failed_batches, works.get(each), _shown(each))
        for each in unit.members()
    ]
    failed = sum(part.failed_batches for part in parts)
    if unit.shards is not None:
        failed += unit.shards.failed_batches
    return TableView(unit, parts, unit.finished_in_all, failed)


def _held(part: Unit, kept: Mapping[Unit, Work]) -> int:
    """How many records it has queued, or keeps for a retry. Under the lock."""
    again = kept.get(part)
    return part.records + (again.records if again else 0)


def _idle(unit: Unit) -> TableView:
    """A table without records. Needs no lock."""
    failed = unit.failed_batches + (unit.shards.failed_batches if unit.shards is not None else 0)
    part = Part("idle", None, 0, unit.failed_batches, None, ())
    return TableView(unit, (part,), unit.finished_in_all, failed)


def _state(unit: Unit) -> TableState:
    if unit.blocked and unit.error:
        return "paused" if unit.paused else "blocked"
    if unit.error and unit.state in (UnitState.READY, UnitState.RUNNING, UnitState.LIMITED):
        return "retrying"
    if unit.state is UnitState.BACKOFF and not unit.error:
        return "running"  # its handler will be asked again
    return _STATES[unit.state]


def _state_of(unit: Unit) -> TableState:
    """The table's state. Needs no lock."""
    if unit.shards is None:
        return _state(unit)
    return min(map(_state, unit.members()), key=_LOUDEST.index)


def _is_looked_into(unit: Unit) -> bool:
    """Whether it has shards, or may be blocked. Needs no lock."""
    return unit.shards is not None or unit.error is not None or unit.state is UnitState.WAITING_FOR_OTHERS


def _has_records(unit: Unit) -> bool:
    """Whether it has any records. It may have only its place in a statement about several tables."""
    return not unit.at_rest and (unit.records > 0 or unit.state is not UnitState.WAITING_FOR_OTHERS)


def _chunks(unit: Unit, works: Mapping[Unit, Work]) -> Iterator[Chunk]:
    """The chunks of each part of a table. Needs no lock."""
    for each in unit.members():
        work = works.get(each)
        if work is not None:
            yield from work.unfinished_chunks()
        while True:
            try:
                queued = _shown(each)
                break
            except RuntimeError:  # it changed meanwhile
                continue
        yield from queued


def _shown(unit: Unit) -> tuple[Chunk, ...]:
    """The queue's chunks. Of the parked ones, only the first: the others are newer, and there are many."""
    if not unit.parked:
        return tuple(unit.chunks)
    first = next((chunk for chunk in unit.chunks if chunk.parked), None)
    return (*(() if first is None else (first,)), *in_memory(unit))
