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
from worker.status import LaneStatus, PartitionStatus, TableStatus, WorkerState, WorkerStatus
from worker.unit import Unit, UnitState

__all__ = ["StatusReport"]

TableState = Literal["idle", "queued", "running", "retrying", "blocked"]

_STATES: dict[UnitState, TableState] = {
    UnitState.IDLE: "idle",
    UnitState.WAITING: "queued",
    UnitState.READY: "queued",
    UnitState.RUNNING: "running",
    UnitState.BACKOFF: "retrying",
    UnitState.HALTED: "blocked",
}

Heads = dict[TopicPartition, tuple[Format, Record]]


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
        self._configuration = configuration
        self._redact = configuration.secrets.redact
        self._assignments = parts.assignments
        self._lanes = parts.lanes
        self._book = parts.book
        self._committer = parts.committer
        self._fetcher = parts.fetcher
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
            ]
            for unit in self._book.all():
                work = running.get(unit) or unit.held
                chunks = [*(work.unfinished_chunks() if work else ()), *unit.chunks]
                heads: Heads = {}
                for chunk in chunks:
                    heads.setdefault(chunk.assignment.partition, (chunk.assignment.format, chunk.messages[0]))
                tables.append((_table(unit, work.runs[0].attempt - 1 if work and work.runs else 0), heads))
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
            name=self._configuration.name,
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
            error=self._redacted(self._error()),
            lane_max_records=self._configuration.lanes.max_records,
            max_bytes=self._configuration.lanes.max_bytes,
        )

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


def _table(unit: Unit, attempt: int) -> TableStatus:
    return TableStatus(
        table=unit.table.label,
        lane=unit.lane,
        finished_records=unit.finished_records,
        failed_batches=unit.failed_batches,
        state="retrying"
        if unit.error and unit.state in (UnitState.READY, UnitState.RUNNING)
        else _STATES[unit.state],
        error=unit.error,
        delay_seconds=None,
        queued_records=unit.records + (unit.held.records if unit.held else 0),
        attempt=attempt,
    )
