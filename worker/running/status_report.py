"""The worker's status, composed from lanes, units, assignments and the committer at one moment."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass

import msgspec

from offsets.metadata import left_out
from offsets.types import Checkpoint, TopicPartition, count_of
from worker import __version__
from worker.configuration import Configuration
from worker.dead_letters.writing import DEAD_LETTER_TARGET
from worker.formats.decoding import source_time
from worker.formats.interface import Format, Record
from worker.lanes.snapshot import TableView, glance, snapshot
from worker.observing.overview.figures import PaceMeter, total_lag
from worker.observing.overview.of_rules import PassingOver
from worker.observing.overview.timeline import Pulse
from worker.observing.status import (
    KafkaStatus,
    Look,
    PartitionError,
    PartitionStatus,
    StuckStatus,
    TableStatus,
    TargetStatus,
    WorkerState,
    WorkerStatus,
)
from worker.running.components import Components
from worker.units.assigned_partition import Assignment
from worker.units.chunk import Chunk, first_of, offset_at

Heads = dict[TopicPartition, tuple[Format, Record]]
_WINDOW_PARTS = 40
_SCHEMA_REGISTRY_TARGET = "__schema_registry__"
"""Its name among the handlers' names."""
SHOWN_TABLES = 1_000
"""The most tables in the status."""


@dataclass(eq=False)
class StatusReport:
    """Makes a WorkerStatus on request. Any thread."""

    configuration: Configuration
    parts: Components
    _: KW_ONLY
    state: Callable[[], WorkerState]
    error: Callable[[], str | None]
    clock: Callable[[], float]
    wall_clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._pace = PaceMeter()
        self._repeated: dict[TopicPartition, tuple[Checkpoint, int]] = {}
        self._redact = self.configuration.secrets.redact
        self._begun = self.clock()
        unmatched = self.parts.book.unmatched
        self.passing_over = PassingOver(lambda: unmatched.records, self._redact)
        """Must be called with log events."""

    def reconfigure(self, configuration: Configuration) -> None:
        self.configuration = configuration

    def __call__(self) -> WorkerStatus:
        return self.look().status

    def whole(self) -> WorkerStatus:
        """Return the status with all tables, however many."""
        return self.look(sys.maxsize).status

    def pulse(self) -> Pulse:
        """Return the few figures that are needed often, without composing each table. The pace is measured
        by them. One thread."""
        units, _ = self.parts.book.counted()
        assigned = self.parts.assignments.current()
        blocked, chunks = glance(self.parts.lanes.seen, units)
        delays = self._delays(chunks)
        lags = [_lag(each, each.tracker.checkpoint) for each in assigned]
        delay = max((delays.get(each.partition, 0.0) for each in assigned), default=None)
        finished = self.parts.lanes.seen.finished_records
        lag = total_lag(lags)
        partitions = frozenset(each.partition for each in assigned)
        self._pace.add(self.clock(), finished, lag, self.parts.backpressure.waited, partitions)
        return Pulse(finished, lag, delay, blocked)

    def look(self, most: int = SHOWN_TABLES) -> Look:
        """Return the status with at most `most` tables, and figures about all."""
        units, gone = self.parts.book.counted()
        seen = snapshot(self.parts.lanes.seen, units, most)
        delays: dict[TopicPartition, float] = {}
        rows = []
        for table in seen.tables:
            found = self._delays(chunk for part in table.parts for chunk in part.held())
            rows.append(self._table(table, max(found.values(), default=None)))
            _keep_longest(delays, found)
        _keep_longest(delays, self._delays(seen.further))
        partitions = [
            self._partition(a, delays.get(a.partition))
            for a in sorted(self.parts.assignments.current(), key=lambda a: a.partition)
        ]
        status = WorkerStatus(
            name=self.configuration.name,
            state=self.state(),
            version=__version__,
            uptime_seconds=round(self.clock() - self._begun, 3),
            partitions=partitions,
            lanes=seen.lanes,
            tables=rows,
            tables_omitted=len(units) - len(rows),
            finished_records=self.parts.lanes.seen.finished_records,
            unmatched_records=self.parts.book.unmatched.records,
            checkpoint=self.parts.committer.status(),
            kafka=KafkaStatus(
                up=self.parts.has_broker,
                unconfirmed_seconds=round(self.parts.membership.held_seconds(self.clock()), 3),
                faults=[
                    msgspec.structs.replace(each, error=self._redact(each.error))
                    for each in self.parts.errors.faults({each.topic for each in partitions})
                ],
            ),
            targets=self._targets(),
            handlers=self.parts.handlers.statuses(),
            error=self._redacted(self.error()),
            lane_max_records=self.configuration.lanes.max_records,
            max_bytes=self.configuration.lanes.max_bytes,
            passed_over=self.passing_over.now(),
            pauses=list(self.parts.table_pauses.given),
            config=str(self.configuration.path),
            waiting_seconds=round(self.parts.backpressure.waiting_seconds(), 3),
            pace=self._pace.now(),
        )
        finished = [*gone.items(), *seen.finished]
        stands = seen.standing.records
        if seen.held_up:
            stands += sum(len(chunk.messages) for _, chunk in self.parts.backlog.parts())
        return Look(
            status,
            finished,
            seen.standing.tables,
            halted=seen.halted,
            target_down=seen.target_down,
            blocked_records=stands,
            parked=(
                seen.standing.parked,
                self.parts.parking_lot.bytes,
                max(0.0, self.clock() - seen.standing.parked_since),
            ),
            held_up=seen.held_up,
            expectations=[(each.table.label, rule) for each in units for rule in each.table.rule.expect],
        )

    def _targets(self) -> list[TargetStatus]:
        """Return one status per handler name: down if one of its handlers is down."""
        found: dict[str, TargetStatus] = {}
        circuits = [(each.name, each.circuit) for each in self.parts.handlers.bound()]
        if self.parts.dead_letters is not None:
            circuits.append((DEAD_LETTER_TARGET, self.parts.dead_letters.circuit))
        if self.parts.registry is not None:
            circuits.append((_SCHEMA_REGISTRY_TARGET, self.parts.registry))
        for name, circuit in circuits:
            down = circuit.down()
            if down is not None:
                error = self._redact(down.reason)
                found[name] = TargetStatus(
                    handler=name,
                    up=False,
                    error=error,
                    down_seconds=round(down.seconds, 3),
                    missing_topic=self._missing_topic(name),
                )
            else:
                found.setdefault(name, TargetStatus(handler=name, up=True))
        for each in self.parts.handlers.bound():
            target, limit = found[each.name], each.limit
            waiting, seconds = target.waiting + limit.waiting, target.waited_seconds + limit.waited
            found[each.name] = msgspec.structs.replace(target, waiting=waiting, waited_seconds=seconds)
        return list(found.values())

    def _missing_topic(self, target: str) -> str | None:
        letters = self.parts.dead_letters
        return letters.topic if target == DEAD_LETTER_TARGET and letters and letters.missing else None

    def _delays(self, chunks: Iterable[Chunk]) -> dict[TopicPartition, float]:
        """Return for each partition: seconds since the oldest of these changes happened in its source."""
        delays = {}
        for partition, (format_, record) in _heads(chunks).items():
            happened = source_time(format_, record)
            if happened is not None:
                delays[partition] = max(0.0, self.wall_clock() - happened / 1000)
        return delays

    def _table(self, table: TableView, delay: float | None) -> TableStatus:
        works = [part.work for part in table.parts]
        now, unit, calls = self.clock(), table.unit, table.unit.turns.calls.copy().items()
        handlers = {each.name for each in unit.table.handlers}  # a reload may have removed others
        stands_since = min((each.stands_since for each in unit.members() if each.error), default=None)
        queued = [chunk.enqueued for part in table.parts for chunk in part.held()[:1] if chunk.enqueued]
        stands = table.stands_at() if table.state in ("blocked", "retrying", "paused") else None
        return TableStatus(
            table=table.unit.table.label,
            lane=table.unit.lane,
            finished_records=table.finished_records,
            failed_batches=table.failed_batches,
            state=table.state,
            error=self._redacted(next((part.error for part in table.parts if part.error), None)),
            delay_seconds=None if delay is None else round(delay, 3),
            queued_records=sum(part.records for part in table.parts),
            attempt=max(work.runs[0].attempt - 1 if work and work.runs else 0 for work in works),
            halted=table.state == "blocked" and table.unit.halted,
            topic=None if stands is None else stands[0].topic,
            partition=None if stands is None else stands[0].partition,
            offset=None if stands is None else stands[1],
            standing_seconds=None if stands_since is None else round(max(0.0, now - stands_since), 3),
            held_seconds=round(max(0.0, now - min(queued)), 3) if queued else None,
            waits_for=unit.state.value if table.state == "queued" else None,
            lane_records=unit.account.records,
            lane_bytes=unit.account.bytes,
            calls={
                at: (n, round(all_ / n, 6), round(most, 6)) for at, (n, all_, most) in calls if at in handlers
            },
        )

    def _redacted(self, text: str | None) -> str | None:
        return None if text is None else self._redact(text)

    def _partition(self, assignment: Assignment, delay: float | None) -> PartitionStatus:
        tracker, parts = assignment.tracker, self.parts
        checkpoint = tracker.checkpoint()
        finished = checkpoint.offset if checkpoint else None
        position, stuck = tracker.next_offset, self._stuck_head(assignment)
        paused = stuck if stuck is not None and stuck.state == "paused" else None
        return PartitionStatus(
            topic=assignment.partition.topic,
            partition=assignment.partition.partition,
            position=position,
            committed=assignment.committed,
            unfinished=tracker.unfinished,
            finished_ahead=count_of(checkpoint.ahead) if checkpoint else 0,
            lag=_lag(assignment, lambda: checkpoint),
            unread=_between(position, assignment.end),
            paused=parts.pauses.is_paused(assignment),
            paused_by=parts.pauses.why(assignment),
            first_commit_seconds=round(parts.gate.uncommitted_seconds(assignment, self.clock()), 3),
            ahead=tracker.ahead(0),
            stuck=None if paused else stuck,
            head_paused_seconds=0.0 if paused is None else paused.seconds,
            standstill_seconds=round(parts.standstill.seconds(assignment), 3),
            error=self._error_of(assignment),
            delay_seconds=None if delay is None else round(delay, 3),
            source_time_ms=assignment.last_source_ms(),
            first_unfinished=finished,
            window=_window(checkpoint, position),
            repeated=self._repeated_of(assignment),
        )

    def _repeated_of(self, assignment: Assignment) -> int:
        """Computed once for each commit, because that takes milliseconds if there are thousands of ranges."""
        sent, (known, records) = assignment.in_kafka, self._repeated.get(assignment.partition, (None, 0))
        if sent is None:
            return 0
        if sent is not known:
            records = left_out(sent)
            self._repeated[assignment.partition] = sent, records
        return records

    def _error_of(self, assignment: Assignment) -> PartitionError | None:
        told = self.parts.standstill.error(assignment)
        return None if told is None else msgspec.structs.replace(told, error=self._redact(told.error))

    def _stuck_head(self, assignment: Assignment) -> StuckStatus | None:
        told = self.parts.stuck.of(assignment)
        if told is None:
            return None
        return msgspec.structs.replace(
            told, error=self._redacted(told.error), stack=self._redacted(told.stack)
        )


def _lag(assignment: Assignment, checkpoint: Callable[[], Checkpoint | None]) -> int | None:
    """`checkpoint`: returns its tracker's checkpoint, used if nothing is committed yet."""
    reached = assignment.committed
    if reached is None and (found := checkpoint()) is not None:
        reached = found.offset
    return _between(reached, assignment.end)


def _between(offset: int | None, end: int | None) -> int | None:
    return None if offset is None or end is None else max(0, end - offset)


def _window(checkpoint: Checkpoint | None, position: int | None) -> list[float]:
    if checkpoint is None or position is None or not checkpoint.ahead or position <= checkpoint.offset:
        return []
    begin, length = checkpoint.offset, position - checkpoint.offset
    parts = min(_WINDOW_PARTS, length)
    filled = [0.0] * parts
    for first, end in checkpoint.ahead:
        left, right = (first - begin) * parts / length, min(end - begin, length) * parts / length
        for part in range(int(left), min(parts, math.ceil(right))):
            filled[part] += min(right, part + 1) - max(left, part)
    return [round(min(share, 1.0), 2) for share in filled]


def _keep_longest(delays: dict[TopicPartition, float], found: Mapping[TopicPartition, float]) -> None:
    for partition, seconds in found.items():
        delays[partition] = max(seconds, delays.get(partition, 0.0))


def _heads(chunks: Iterable[Chunk]) -> Heads:
    """Return the oldest of these records of each partition."""
    first: dict[TopicPartition, tuple[int, Chunk]] = {}
    for chunk in chunks:
        if not chunk.messages:  # a barrier's place
            continue
        partition, offset = chunk.assignment.partition, offset_at(chunk.messages, 0)
        known = first.get(partition)
        if known is None or offset < known[0]:
            first[partition] = offset, chunk
    return {
        partition: (chunk.assignment.format, record)
        for partition, (_, chunk) in first.items()
        if (record := first_of(chunk.messages)) is not None
    }
