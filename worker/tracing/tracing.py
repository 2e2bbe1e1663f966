"""Tracing as the worker's threads see it: which batches and records have spans, and what happens to them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.trace import SpanContext

from handlers.logs import get_logger
from worker.attempts.backoff import text_of
from worker.observing.metrics import Metrics
from worker.tracing.attributes import of_record
from worker.tracing.batches import BatchTrace
from worker.tracing.fetch_times import FetchTimes
from worker.tracing.parents import headers_of, parent_in
from worker.tracing.provider import Spans
from worker.tracing.records import Fault, RecordTrace
from worker.tracing.waiting import Waiting

if TYPE_CHECKING:
    from worker.configuration import TracingRule
    from worker.formats.interface import Record
    from worker.units.assigned_partition import Assignment
    from worker.units.work import Work

__all__ = ["Tracing"]

log = get_logger("tracing")

_MOST_RECORDS = 100
"""Records of one batch that have a trace of their own."""
_MOST_LINKS = 128
"""Links of one span, as OpenTelemetry's own limit is."""
_CLOSE_SECONDS = 3.0


class Tracing:
    """One worker's. Every method may be called from any thread."""

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
        self._waiting = Waiting()
        self._faulty = False
        self.fetch_times = FetchTimes()

    def share(self) -> None:
        """What handlers trace themselves goes to the same collector, unless they have set that up."""
        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            trace.set_tracer_provider(self._spans.provider)

    def begin(self, work: Work) -> BatchTrace | None:
        """The batch's trace, `work.trace` from now on; it begins when a processor first takes it.

        None: a fault of tracing itself, told once, which costs no more than the trace."""
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
        context, sampled = self._spans.choose()
        found = self._found(work, sampled=sampled)
        fetched = taken
        if sampled and work.chunks[0].messages:
            first = work.chunks[0]
            fetched = self.fetch_times.of(first.assignment, first.messages[0].offset(), taken)
        work.trace = batch = BatchTrace(
            self._spans.tracer,
            work.chunks,
            context=context,
            sampled=sampled,
            table=work.unit.table.label,
            group=self._group,
            begun=fetched,
            parents=[parent for _, _, parent in found[:_MOST_LINKS]],
            fault=self.fault,
        )
        batch.queued(fetched, taken)
        for chunk in work.chunks:
            for own in self._waiting.of(chunk):
                batch.records[own.place] = own
        table, link = work.unit.table.label, batch.context if sampled else None
        for assignment, record, parent in found:
            self._go_on(batch, assignment, record, parent, table=table, taken=taken, link=link)
        return batch

    def finished(self, batch: BatchTrace) -> None:
        """All handlers are through with the batch."""
        waits_for = batch.finished(time.time_ns())
        if not waits_for or self._waiting.full:
            batch.end("finished")
            return
        for assignment, last in waits_for.items():
            self._waiting.add_batch(assignment, last, batch)

    def committed(self, _saved: Iterable[Assignment] = ()) -> None:
        """A checkpoint has been saved: what Kafka has now waits no more, nor what belongs to others."""
        now = time.time_ns()
        for assignment in self._waiting.assignments():
            if assignment.committed is not None:
                for each in self._waiting.take(assignment, assignment.committed):
                    self._spans.queue.later(partial(each.committed, now))
            if assignment.closed:
                for each in self._waiting.take(assignment, None):
                    self._spans.queue.later(partial(each.left, now))
        self.fetch_times.forget([each for each in self.fetch_times.known() if each.closed])

    def close(self) -> None:
        """Tell what is left, and end."""
        self.committed()
        now = time.time_ns()
        for assignment in self._waiting.assignments():
            for each in self._waiting.take(assignment, None):
                self._spans.queue.later(partial(each.left, now))
        self._spans.queue.close(_CLOSE_SECONDS)

    def fault(self, error: BaseException) -> Fault:
        """What is told of an error."""
        return Fault(type(error).__name__, self._redact(text_of(error)))

    def _found(self, work: Work, *, sampled: bool) -> list[tuple[Assignment, Record, SpanContext]]:
        """The batch's records whose producers began a trace. Headers are read only where that is wanted."""
        if not sampled and not self._budget.left:
            return []
        found = []
        for chunk in work.chunks:
            for record in chunk.messages:
                headers: Any = record.headers()
                if headers and (parent := parent_in(headers_of(record))) is not None:
                    found.append((chunk.assignment, record, parent))
        return found

    def _go_on(
        self,
        batch: BatchTrace,
        assignment: Assignment,
        record: Record,
        parent: SpanContext,
        *,
        table: str,
        taken: int,
        link: SpanContext | None,
    ) -> None:
        """Go on with the trace of a record whose producer has chosen it, if there is room for it."""
        place = (record.topic(), record.partition(), record.offset())
        if not parent.trace_flags.sampled or place in batch.records:
            return
        if len(batch.records) >= _MOST_RECORDS or self._waiting.full or not self._budget.take():
            self._metrics.spans_dropped("too_many")
            return
        own = RecordTrace(
            self._spans.tracer,
            parent,
            of_record(record, table, self._group),
            place=place,
            fetched=self.fetch_times.of(assignment, place[2], taken),
            taken=taken,
            batch=link,
        )
        batch.records[place] = own
        self._waiting.add(assignment, place[2], own)


class _Budget:
    """So many a second."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()  # guards the two below
        self._second = 0
        self._taken = 0

    @property
    def left(self) -> bool:
        return self._taken < self._most or int(time.monotonic()) != self._second

    def take(self) -> bool:
        with self._lock:
            second = int(time.monotonic())
            if second != self._second:
                self._second, self._taken = second, 0
            if self._taken >= self._most:
                return False
            self._taken += 1
            return True
