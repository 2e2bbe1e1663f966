"""The worker's status put together: from lanes, units, assignments and the committer, at one moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from offsets.types import TopicPartition
from worker import __version__
from worker.assignment import Assignment
from worker.configuration import Configuration
from worker.formats.interface import Format, Record
from worker.parts import Parts
from worker.status import LaneStatus, PartitionStatus, TableStatus, TargetStatus, WorkerState, WorkerStatus
from worker.unit import Unit, UnitState
from worker.work import Work

__all__ = ["StatusReport"]

TableState = Literal["idle", "queued", "running", "retrying", "blocked"]

_STATES: dict[UnitState, TableState] = {
    UnitState.IDLE: "idle",
    UnitState.WAITING: "queued",
    UnitState.BEHIND: "queued",
    UnitState.READY: "queued",
    UnitState.RUNNING: "running",
    UnitState.BACKOFF: "retrying",
    UnitState.HALTED: "blocked",
}

_LOUDEST: tuple[TableState, ...] = ("blocked", "retrying", "running", "queued", "idle")
"""Of the states of a table's shards, the first of these is the table's."""

Heads = dict[TopicPartition, tuple[Format, Record]]
Works = dict[Unit, Work | None]
"""A table's own unit and its shards, each with the batch that it runs or keeps."""


class StatusReport:
    """Makes a WorkerStatus when asked. Any thread."""

    def __init__(
        self,
        configuration: Configuration,
        parts: Parts,
        *,
        state: Callable[[], WorkerState],
        error: Callable[[], str | None],
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self.configuration = configuration
        self._redact = configuration.secrets.redact
        self._assignments = parts.assignments
        self._lanes = parts.lanes
        self._book = parts.book
        self._committer = parts.committer
        self._fetcher = parts.fetcher
        self._circuits = parts.circuits
        self._handlers = parts.handlers
        self._state = state
        self._error = error
        self._clock = clock
        self._wall_clock = wall_clock
        self._begun = clock()

    def __call__(self) -> WorkerStatus:
        tables: list[tuple[TableStatus, Heads]] = []
        with self._lanes.lock:
            now = self._clock()
            running = {lane.running.unit: lane.running for lane in self._lanes.lanes if lane.running}
            lanes = [
                LaneStatus(
                    lane=lane.number,
                    queued_records=lane.records,
                    queued_bytes=lane.bytes,
                    running_table=lane.running.unit.table.label if lane.running else None,
                    running_seconds=round(now - lane.since, 3) if lane.running else None,
                    busy_seconds=lane.busy_seconds + (now - lane.since if lane.running else 0.0),
                )
                for lane in self._lanes.lanes
                if lane.number < self._lanes.count or lane.running
            ]
            for unit in self._book.all():
                works = {each: running.get(each) or each.held for each in unit.members()}
                tables.append((_table(unit, works), _heads(works)))
        delays: dict[TopicPartition, float] = {}
        rows = []
        for table, heads in tables:
            found = {partition: self._delay(*head) for partition, head in heads.items()}
            for partition, seconds in found.items():
                if seconds is not None:
                    delays[partition] = max(seconds, delays.get(partition, 0.0))
            known = [seconds for seconds in found.values() if seconds is not None]
            rows.append(self._completed(table, max(known) if known else None))
        return WorkerStatus(
            name=self.configuration.name,
            state=self._state(),
            version=__version__,
            uptime_seconds=round(self._clock() - self._begun, 3),
            partitions=[
                self._partition(a, delays.get(a.partition))
                for a in sorted(self._assignments.current(), key=lambda a: a.partition)
            ],
            lanes=lanes,
            tables=rows,
            checkpoint=self._committer.status(),
            targets=self._targets(),
            handlers=self._handlers.statuses(),
            error=self._redacted(self._error()),
            lane_max_records=self.configuration.lanes.max_records,
            max_bytes=self.configuration.lanes.max_bytes,
        )

    def _targets(self) -> list[TargetStatus]:
        """Handlers of one name as one: down while one of them is."""
        found: dict[str, TargetStatus] = {}
        for name, circuit in self._circuits():
            down = circuit.down()
            if down is not None:
                error = self._redact(down.reason)
                found[name] = TargetStatus(
                    handler=name, up=False, error=error, down_seconds=round(down.seconds, 3)
                )
            else:
                found.setdefault(name, TargetStatus(handler=name, up=True))
        return list(found.values())

    def _delay(self, format_: Format, record: Record) -> float | None:
        """Seconds since the change happened in its source."""
        happened = format_.source_time_ms(record)
        return None if happened is None else max(0.0, self._wall_clock() - happened / 1000)

    def _completed(self, table: TableStatus, delay: float | None) -> TableStatus:
        return msgspec.structs.replace(
            table,
            delay_seconds=None if delay is None else round(delay, 3),
            error=self._redacted(table.error),
        )

    def _redacted(self, text: str | None) -> str | None:
        return None if text is None else self._redact(text)

    def _partition(self, assignment: Assignment, delay: float | None) -> PartitionStatus:
        tracker = assignment.tracker
        checkpoint = tracker.checkpoint()
        finished = checkpoint.offset if checkpoint else None
        end = assignment.end
        committed = assignment.committed
        reached = finished if committed is None else committed
        return PartitionStatus(
            topic=assignment.partition.topic,
            partition=assignment.partition.partition,
            position=tracker.next_offset,
            committed=committed,
            unfinished=tracker.unfinished,
            finished_ahead=sum(last - first for first, last in checkpoint.ahead) if checkpoint else 0,
            lag=None if end is None or reached is None else max(0, end - reached),
            paused=self._fetcher.paused,
            delay_seconds=None if delay is None else round(delay, 3),
        )


def _table(unit: Unit, works: Works) -> TableStatus:
    shards = unit.shards
    states = [_state(each) for each in works]
    return TableStatus(
        table=unit.table.label,
        lane=unit.lane,
        finished_records=sum(each.finished_records for each in works)
        + (shards.finished_records if shards else 0),
        failed_batches=sum(each.failed_batches for each in works) + (shards.failed_batches if shards else 0),
        state=min(states, key=_LOUDEST.index),
        error=next((each.error for each in works if each.error), None),
        delay_seconds=None,
        queued_records=sum(each.records + (each.held.records if each.held else 0) for each in works),
        attempt=max(work.runs[0].attempt - 1 if work and work.runs else 0 for work in works.values()),
    )


def _state(unit: Unit) -> TableState:
    if unit.blocked and unit.error:
        return "blocked"
    if unit.error and unit.state in (UnitState.READY, UnitState.RUNNING):
        return "retrying"
    return _STATES[unit.state]


def _heads(works: Works) -> Heads:
    """The oldest unfinished record of each partition."""
    heads: Heads = {}
    for unit, work in works.items():
        for chunk in [*(work.unfinished_chunks() if work else ()), *unit.chunks]:
            if not chunk.messages:  # a barrier's place
                continue
            first = chunk.messages[0]
            known = heads.get(chunk.assignment.partition)
            if known is None or first.offset() < known[1].offset():
                heads[chunk.assignment.partition] = (chunk.assignment.format, first)
    return heads
