"""Tracing for the worker's threads: which batches and records have spans, and when these end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping
from queue import SimpleQueue
from typing import TypeVar

from opentelemetry import trace
from opentelemetry.trace import SpanContext

from handlers.logs import get_logger
from worker.attempts.backoff import text_of
from worker.configuration import TracingRule
from worker.formats.interface import Record, any_headers
from worker.observing.metrics import Metrics
from worker.tracing.batches import BatchTrace
from worker.tracing.provider import Spans
from worker.tracing.spans import Fault, Place, RecordTrace, is_sampled, of_record, parent_of, place_of
from worker.units.assigned_partition import Assignment
from worker.units.chunk import Chunk
from worker.units.work import Work

log = get_logger("tracing")

_MOST_RECORDS = 100
"""The most records of one batch that have their own trace."""
_MOST_LINKS = 128
"""The most links of one span: OpenTelemetry's own limit."""
_CLOSE_SECONDS = 3.0
_MOST_WAITING = 10_000
"""The most records and batches that wait at once. Without it, a blocked table's would grow without limit."""


class Tracing:
    """The tracing of one worker. Any thread may call any method."""

    def __init__(
        self,
        rule: TracingRule,
        metrics: Metrics,
        *,
        worker: str,
        group: str,
        redact: Callable[[str], str],
        environment: Mapping[str, str],
    ) -> None:
        self._spans = Spans(rule, metrics, service=worker, environment=environment)
        self._metrics = metrics
        self._group = group
        self._redact = redact
        self._budget = _Budget(rule.records_per_second)
        self._waiting = _Waiting()
        self._faulty = False
        self._done = SimpleQueue[tuple[list[_Trace], bool, int] | None]()
        """Traces that end, whether they are committed, and the time in nanoseconds since 1970."""
        self._thread = threading.Thread(target=self._tell, name="tracing", daemon=True)
        self._thread.start()

    def share(self) -> None:
        """Send spans of handlers' own tracing to the same collector, unless they have configured another."""
        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            trace.set_tracer_provider(self._spans.provider)

    def begin(self, work: Work) -> BatchTrace | None:
        """Return the batch's trace, and set `work.trace`. It begins when a processor first takes the batch.

        None: tracing itself failed, which is logged once, and only the trace is lost."""
        known: BatchTrace | None = getattr(work, "trace", None)
        if known is not None:
            return known
        try:
            return self._begun(work)
        except Exception as error:
            if not self._faulty:
                self._faulty = True
                log.error("trace_not_begun", error=self._redact(text_of(error)), exc_info=error)
            return None

    def _begun(self, work: Work) -> BatchTrace:
        taken = time.time_ns()
        fetched = min(taken, int(work.chunks[0].fetched * 1e9))
        work.trace = batch = BatchTrace(
            self._spans.tracer,
            work.chunks,
            table=work.unit.table.label,
            group=self._group,
            begun=fetched,
            fault=self.fault,
        )
        known = {own.place: own for chunk in work.chunks for own in self._waiting.of(chunk)}
        chosen, links = self._found(work, known, sampled=batch.sampled)
        batch.link(links)
        batch.queued(fetched, taken)
        batch.records |= known
        for chunk, record, parent in chosen:
            own = RecordTrace(
                self._spans.tracer,
                parent,
                of_record(record, work.unit.table.label, self._group),
                place=place_of(record),
                fetched=min(taken, int(chunk.fetched * 1e9)),
                taken=taken,
                batch=batch.context if batch.sampled else None,
            )
            batch.records[own.place] = self._waiting.add(chunk.assignment, record.offset(), own)
        return batch

    def finished(self, batch: BatchTrace) -> None:
        """Handle the end of the batch's processing."""
        waits_for = batch.finished(time.time_ns())
        if not waits_for or self._waiting.full:
            batch.end("finished")
            return
        for assignment, last in waits_for.items():
            self._waiting.add(assignment, last, batch)

    def committed(self, _saved: Iterable[Assignment] = ()) -> None:
        """End the traces of committed records after a saved checkpoint, and those of revoked partitions."""
        for assignment in self._waiting.assignments():
            if assignment.committed is not None:
                self._done.put((self._waiting.take(assignment, assignment.committed), True, time.time_ns()))
            if assignment.closed:
                self._done.put((self._waiting.take(assignment, None), False, time.time_ns()))

    def close(self) -> None:
        began = time.monotonic()
        self.committed()
        for assignment in self._waiting.assignments():
            self._done.put((self._waiting.take(assignment, None), False, time.time_ns()))
        self._done.put(None)
        self._thread.join(_CLOSE_SECONDS)
        self._spans.queue.close(max(0.0, _CLOSE_SECONDS + began - time.monotonic()))

    def _tell(self) -> None:
        """End traces on a separate thread, as fast as the collector accepts their spans."""
        while (done := self._done.get()) is not None:
            traces, is_committed, now = done
            for number, each in enumerate(traces, 1):
                (each.committed if is_committed else each.left)(now)
                if number % _MOST_RECORDS == 0:
                    self._spans.queue.force_flush()

    def fault(self, error: BaseException) -> Fault:
        return Fault(type(error).__name__, self._redact(text_of(error)))

    def _found(
        self, work: Work, known: Container[Place], *, sampled: bool
    ) -> tuple[list[tuple[Chunk, Record, SpanContext]], list[SpanContext]]:
        """Find the records whose traces are continued, and the links of the batch's span.

        `known`: records that already have a trace. Headers cost 0.5 us a record, so they are read only if
        they may be used."""
        chosen: list[tuple[Chunk, Record, SpanContext]] = []
        links: list[SpanContext] = []
        too_many = 0
        if not sampled and not self._budget.left:
            return chosen, links
        for chunk in work.chunks:
            for record in chunk.messages:
                headers = any_headers(record)
                if not headers:
                    continue
                wanted = is_sampled(headers)
                if not wanted and not sampled:
                    continue
                linked = sampled and len(links) < _MOST_LINKS
                if wanted and (len(chosen) >= _MOST_RECORDS or self._waiting.full or not self._budget.left):
                    too_many += 1
                    wanted = False
                parent = parent_of(headers) if wanted or linked else None
                if parent is None:
                    continue
                if linked:
                    links.append(parent)
                if wanted and place_of(record) not in known and self._budget.take():
                    chosen.append((chunk, record, parent))
        if too_many:
            self._metrics.count("binlane_spans_dropped_total", "too_many", amount=too_many)
        return chosen, links


class _Budget:
    """A limit of records per second."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()  # guards the two fields below
        self._second = 0
        self._taken = 0

    @property
    def left(self) -> bool:
        return self._taken < self._most or int(time.monotonic()) != self._second

    def take(self) -> bool:
        with self._lock:
            second = int(time.monotonic())
            self._taken = self._taken + 1 if second == self._second else 1
            self._second = second
            return self._taken <= self._most


_Trace = RecordTrace | BatchTrace
_Own = TypeVar("_Own", RecordTrace, BatchTrace)


class _Waiting:
    """A bounded collection. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards all fields below
        self._traces: dict[Assignment, dict[tuple[int, int], _Trace]] = {}
        """The key: the last offset that the trace waits for, and the id of a batch (0 for a record)."""
        self._count = 0

    @property
    def full(self) -> bool:
        return self._count >= _MOST_WAITING

    def add(self, assignment: Assignment, last: int, trace: _Own) -> _Own:
        """Let the trace wait until everything up to `last` is committed.

        Returns the waiting trace: another part of the same record may have added its own earlier."""
        with self._lock:
            key = last, 0 if isinstance(trace, RecordTrace) else id(trace)
            waits = self._traces.setdefault(assignment, {}).setdefault(key, trace)
            self._count += waits is trace
            return waits  # type: ignore[return-value]  # the key identifies the type

    def of(self, chunk: Chunk) -> list[RecordTrace]:
        """Return waiting traces of the chunk's records, from another shard or before a requeue."""
        if not chunk.messages or not self._traces.get(chunk.assignment):
            return []
        first, last = chunk.messages[0].offset(), chunk.messages[-1].offset()
        with self._lock:
            inside = [
                trace
                for (offset, _), trace in self._traces.get(chunk.assignment, {}).items()
                if first <= offset <= last and isinstance(trace, RecordTrace)
            ]
        offsets = {message.offset() for message in chunk.messages} if inside else ()
        return [trace for trace in inside if trace.place[2] in offsets]

    def assignments(self) -> list[Assignment]:
        with self._lock:
            return list(self._traces)

    def take(self, assignment: Assignment, end: int | None) -> list[_Trace]:
        """Remove and return the traces below `end`; None: all."""
        with self._lock:
            traces = self._traces.get(assignment, {})
            done = [key for key in traces if end is None or key[0] < end]
            found = [traces.pop(key) for key in done]
            if not traces:
                self._traces.pop(assignment, None)
            self._count -= len(found)
        return found
