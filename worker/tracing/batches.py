"""The span of one batch, from the fetch of its first record to the commit of its last."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Span, SpanContext, SpanKind, Tracer

from handlers import Batch
from handlers.failures import AskAgain
from worker.formats.interface import any_headers
from worker.tracing import spans
from worker.units.assigned_partition import Assignment
from worker.units.chunk import Chunk


class BatchTrace:
    """The traces of a batch: its own span, if it was sampled, and the spans of its records.

    Only one processor uses it at a time. The handlers' threads may call `attempt` concurrently. If the batch
    is dropped unfinished, its span ends too."""

    def __init__(
        self,
        tracer: Tracer,
        chunks: Sequence[Chunk],
        *,
        table: str,
        group: str,
        begun: int,
        fault: Callable[[BaseException], spans.Fault],
    ) -> None:
        self._tracer = tracer
        self._chunks = chunks
        self._fault = fault
        self._group = group
        self.records: dict[spans.Place, spans.RecordTrace] = {}
        """Traces of the records that have their own."""
        self._left = 0
        self._finished = 0
        self._passed: dict[spans.Place, Mapping[str, str]] | None = None
        partitions = {chunk.assignment.partition for chunk in chunks}
        topics = {each.topic for each in partitions}
        self._topic = topics.pop() if len(topics) == 1 else None
        name = f"process_batch {self._topic or table}"
        self._span = tracer.start_span(name, contexts.Context(), SpanKind.CONSUMER, start_time=begun)
        if self.sampled:
            count = sum(len(each.messages) for each in chunks)
            self._span.set_attributes(spans.of_batch(partitions, count, table, group))

    def __del__(self) -> None:
        with suppress(Exception):  # the interpreter may be shutting down
            self.end("queued_again")

    @property
    def sampled(self) -> bool:
        """Whether its span was sampled, and has not ended."""
        return self._span.is_recording()

    @property
    def context(self) -> SpanContext:
        return self._span.get_span_context()

    def link(self, parents: Iterable[SpanContext]) -> None:
        """Link the span to `parents`, the spans of its records."""
        for parent in parents:
            self._span.add_link(parent)

    def queued(self, begun: int, ended: int) -> None:
        self._tell("queue", begun, ended)

    def decoded(self, begun: int, ended: int) -> None:
        for record in self.records.values():
            record.decoded = record.decoded or (begun, ended)
        self._tell("decode", begun, ended)

    def narrowed(self, chunks: Sequence[Chunk], records: int) -> None:
        """Handle a cut of the batch: these chunks remain."""
        self._chunks = chunks
        if self.sampled:
            self._span.set_attribute("messaging.batch.message_count", records)

    @contextmanager
    def attempt(self, handler: str, batch: Batch) -> Iterator[None]:
        """Trace a handler's call with this batch or a part: its span is the current one meanwhile."""
        begun, span = time.time_ns(), self._span
        is_told = self.sampled
        if is_told:
            attributes: spans.Attributes = {
                "binlane.handler": handler,
                "binlane.attempt": batch.attempt,
                "binlane.changes": len(batch.changes),
            }
            span = spans.begin(self._tracer, span, f"handle {handler}", begun, attributes)
        batch.traced_by = _Passed(self, span.get_span_context())
        token = contexts.attach(trace.set_span_in_context(span))
        fault = None
        try:
            yield
        except AskAgain:  # not a failure
            raise
        except BaseException as error:
            fault = self._fault(error)
            raise
        finally:
            contexts.detach(token)
            ended = time.time_ns()
            if is_told:
                _end(span, fault, ended)
            for (topic, partition, offset), record in self.records.items():
                first, last = batch.positions.get((topic, partition), (offset + 1, offset))
                if first <= offset <= last:
                    record.attempts.append(spans.Attempt(handler, begun, ended, fault))

    def event(self, name: str, attributes: spans.Attributes) -> None:
        if self.sampled:
            self._span.add_event(name, attributes)

    def finished(self, now: int) -> dict[Assignment, int]:
        """Handle the end of processing. Return the offsets that it waits for: the last of each partition."""
        self._finished = now
        for record in self.records.values():
            record.finished = now
        chunks, self._chunks = self._chunks, ()
        if not self.sampled:
            return {}
        last = {chunk.assignment: chunk.messages[-1].offset() for chunk in chunks if chunk.messages}
        self._left = len(last)
        return last

    def committed(self, now: int) -> None:
        """Handle a commit beyond its last record in one of the partitions."""
        self._left -= 1
        if self._left > 0:
            return
        name = f"commit {self._topic or ''}".rstrip()
        self._tell(name, self._finished, now, spans.of_commit(self._topic, self._group))
        self.end("committed", now=now)

    def left(self, now: int) -> None:
        self.end("not_committed", now=now)

    def end(self, outcome: str, fault: spans.Fault | None = None, now: int | None = None) -> None:
        """End the span, unless it has ended."""
        self._chunks = ()
        if self.sampled:
            self._span.set_attribute("binlane.outcome", outcome)
            _end(self._span, fault, now)

    def passed_on(self, place: spans.Place) -> Mapping[str, str]:
        """Return the headers of a record's trace: its trace here if it has one, else its producer's."""
        own = self.records.get(place)
        if own is not None:
            return spans.told(own.span.get_span_context())
        if self._passed is None:
            self._passed = {
                spans.place_of(message): spans.told(parent)
                for chunk in self._chunks
                for message in chunk.messages
                if (parent := spans.parent_of(any_headers(message))) is not None
            }
        return self._passed.get(place, {})

    def _tell(self, name: str, begun: int, ended: int, attributes: spans.Attributes | None = None) -> None:
        if self.sampled:
            spans.tell(self._tracer, self._span, name, (begun, ended), attributes)


@dataclass(frozen=True)
class _Passed:
    """The trace headers that a handler may pass on during its current call."""

    trace: BatchTrace
    context: SpanContext

    def of_batch(self) -> Mapping[str, str]:
        return spans.told(self.context)

    def of_record(self, topic: str, partition: int, offset: int) -> Mapping[str, str]:
        return self.trace.passed_on((topic, partition, offset))


def _end(span: Span, fault: spans.Fault | None, now: int | None) -> None:
    if fault is not None:
        span.add_event("exception", fault.attributes(), now)
    spans.end(span, fault, now)
