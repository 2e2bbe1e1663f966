"""Where a record is in the lanes (which processor runs it, or what it waits for), and how to skip it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from worker.attempts.steps import SetAside
from worker.lanes.lanes import Lanes
from worker.units.assigned_partition import Assignment
from worker.units.chunk import Chunk, place_of
from worker.units.unit import Unit, UnitState
from worker.units.work import Work

Doing = Literal["running", "retrying", "paused", "halted", "queued", "waiting for others", "held back"]
"""In the running batch. In a batch that will be retried, is paused, or failed permanently. Queued. Queued
behind others. Finished, but held back until other rows of its transaction or table finish."""


@dataclass(frozen=True, slots=True)
class RecordLocation:
    """The location of one record, or of a shard's part of one. It may already be out of date."""

    unit: Unit
    """The table's own unit, or the shard that has the record."""
    doing: Doing
    lane: int
    """The lane where it runs, or where its unit queues."""
    error: str | None
    work: Work | None = None
    """The batch that contains the record."""
    number: int = 0
    """The number of records before it in that batch."""
    seconds: float | None = None
    """How long that batch has been running."""
    held_by: tuple[Assignment, int] | None = None
    """If it is held back: the record that must finish first."""


def locate(
    lanes: Lanes, units: Iterable[Unit], wanted: Mapping[Assignment, int], now: float
) -> dict[Assignment, list[RecordLocation]]:
    """Locate the wanted offsets that are unfinished. An offset without a location is in no lane.

    Any thread. Takes the lock of `Lanes` once for each table."""
    found: dict[Assignment, list[RecordLocation]] = {}
    for unit in units:
        if unit.at_rest:
            continue
        with lanes.lock:
            for assignment, place in _of_table(lanes, unit, wanted, now):
                found.setdefault(assignment, []).append(place)
    return found


def _of_table(
    lanes: Lanes, unit: Unit, wanted: Mapping[Assignment, int], now: float
) -> Iterator[tuple[Assignment, RecordLocation]]:
    running = {lane.running.unit: lane for lane in lanes.lanes if lane.running}
    for member in unit.members():
        lane = running.get(member)
        work = lanes.schedule.kept.get(member) if lane is None else lane.running
        if work is not None:
            doing: Doing = "paused" if member.blocked and member.paused else "retrying"
            if member.state in (UnitState.HALTED, UnitState.LIMITED):
                doing = "halted" if member.state is UnitState.HALTED else "queued"
            at, seconds = member.lane, None
            if lane is not None:
                doing, at, seconds = "running", lane.number, now - lane.since
            for assignment, number in numbers(work.chunks, wanted):
                if number >= work.finished:
                    yield (
                        assignment,
                        RecordLocation(member, doing, at, member.error, work, number, seconds),
                    )
        doing = "waiting for others" if member.state is UnitState.WAITING_FOR_OTHERS else "queued"
        for assignment, _ in numbers(member.chunks, wanted):
            yield assignment, RecordLocation(member, doing, member.lane, None)
    if unit.shards is not None:
        for assignment, offset in wanted.items():
            held_by = unit.shards.order.held_by(assignment, offset)
            if held_by is not None:
                yield assignment, RecordLocation(unit, "held back", unit.lane, None, held_by=held_by)


def numbers(chunks: Iterable[Chunk], wanted: Mapping[Assignment, int]) -> Iterator[tuple[Assignment, int]]:
    """Yield the wanted offsets in these chunks, each with the number of records before it."""
    before = 0
    for chunk in chunks:
        offset = wanted.get(chunk.assignment)
        if offset is not None and (place := place_of(chunk.messages, offset)) is not None:
            yield chunk.assignment, before + place
        before += len(chunk.messages)


def set_aside(
    lanes: Lanes, unit: Unit, work: Work, number: int, order: SetAside, *, or_before: bool = False
) -> bool:
    """Give the order about the batch's record to `unit`, the table or shard that keeps the batch, and retry
    it at once. Returns False, and does nothing, if the unit is not blocked at that record (or, with
    `or_before`, at one before it)."""
    with lanes.lock:
        schedule = lanes.schedule
        first = min((number, *work.stands_at())) if or_before else number
        if schedule.kept.get(unit) is not work or not blocked_at(unit, work, first):
            return False
        work.orders = {**work.orders, number: order}  # an earlier order about another record stays
        for run in work.runs:
            run.circuit.hurry()
            run.retry_at = 0.0
        if unit.state in (UnitState.HALTED, UnitState.BACKOFF, UnitState.LIMITED):
            unit.mended()
            schedule.let_run((unit,))
            schedule.wake()
        return True


def blocked_at(unit: Unit, work: Work, number: int) -> bool:
    """Whether this kept batch failed or waits for its target, and a handler must handle that record."""
    waits = unit.state is UnitState.HALTED or unit.error is not None
    return waits and number in work.stands_at()
