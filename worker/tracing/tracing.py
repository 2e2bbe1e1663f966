"""Tracing as the worker's threads see it: which batches and records have spans, and what happens to them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.trace import SpanContext

from handlers.logs import get_logger
from worker.attempts.backoff import text_of
from worker.observing.metrics import Metrics
from worker.tracing.attributes import of_record
from worker.tracing.batches import BatchTrace
from worker.tracing.fetch_times import FetchTimes
from worker.tracing.parents import headers_of, is_sampled, parent_in, place_of
from worker.tracing.provider import Spans
from worker.tracing.records import Fault, Place, RecordTrace
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
        known = {own.place: own for chunk in work.chunks for own in self._waiting.of(chunk)}
        chosen, links = self._found(work, known, sampled=sampled)
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
            parents=links,
            fault=self.fault,
        )
        batch.queued(fetched, taken)
        batch.records |= known
        for assignment, record, parent in chosen:
            own = RecordTrace(
                self._spans.tracer,
                parent,
                of_record(record, work.unit.table.label, self._group),
                place=place_of(record),
                fetched=self.fetch_times.of(assignment, record.offset(), taken),
                taken=taken,
                batch=batch.context if sampled else None,
            )
            batch.records[own.place] = self._waiting.add(assignment, record.offset(), own)
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

    def _found(
        self, work: Work, known: Container[Place], *, sampled: bool
    ) -> tuple[list[tuple[Assignment, Record, SpanContext]], list[SpanContext]]:
        """The batch's records whose traces are gone on with, and what its span is linked to.

        `known`: those that have one already. Headers are read only while something may come of it: 0.5 us a
        record."""
        chosen: list[tuple[Assignment, Record, SpanContext]] = []
        links: list[SpanContext] = []
        too_many = 0
        if not sampled and not self._budget.left:
            return chosen, links
        for chunk in work.chunks:
            for record in chunk.messages:
                headers = record.headers()
                if not headers:
                    continue
                wanted = is_sampled(headers)
                if not wanted and (not sampled or len(links) >= _MOST_LINKS):
                    continue
                full = len(chosen) >= _MOST_RECORDS or self._waiting.full
                if wanted and (full or not self._budget.left):
                    too_many += 1
                    if not sampled or len(links) >= _MOST_LINKS:
                        continue
                    wanted = False
                parent = parent_in(headers_of(record))
                if parent is None:
                    continue
                if sampled and len(links) < _MOST_LINKS:
                    links.append(parent)
                if wanted and place_of(record) not in known and self._budget.take():
                    chosen.append((chunk.assignment, record, parent))
        if too_many:
            self._metrics.spans_dropped("too_many", too_many)
        return chosen, links


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
