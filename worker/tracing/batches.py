"""One batch's span, from the fetch of its first record to the commit of its last."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, Tracer

from handlers import Batch
from handlers.asking_again import AskAgain
from worker.tracing.attributes import Attributes, of_batch, of_commit
from worker.tracing.parents import headers_of, told
from worker.tracing.records import Attempt, Fault, Place, RecordTrace

if TYPE_CHECKING:
    from worker.units.assigned_partition import Assignment
    from worker.units.chunk import Chunk

__all__ = ["BatchTrace"]


class BatchTrace:
    """What is told of a batch: its own span if it was chosen, and the spans of records in it.

    One processor at a time; its handlers' threads may call `attempt` at once. Whoever lets go of the batch
    without finishing it ends its span by that.
    """

    def __init__(
        self,
        tracer: Tracer,
        chunks: Sequence[Chunk],
        *,
        context: SpanContext,
        sampled: bool,
        table: str,
        group: str,
        begun: int,
        parents: Sequence[SpanContext],
        fault: Callable[[BaseException], Fault],
    ) -> None:
        """`context`: what its span is, or would be. `parents`: of its records, to be linked to."""
        self._tracer = tracer
        self._chunks = chunks
        self._fault = fault
        self._group = group
        self.records: dict[Place, RecordTrace] = {}
        """Those of its records that have a trace of their own."""
        self._span: Span | None = None
        self._left = 0
        self._finished = 0
        self._passed: dict[Place, Mapping[str, str]] | None = None
        partitions = {chunk.assignment.partition for chunk in chunks}
        topics = {each.topic for each in partitions}
        self._topic = topics.pop() if len(topics) == 1 else None
        if sampled:
            attributes = of_batch(partitions, sum(len(each.messages) for each in chunks), table, group)
            self._span = tracer.start_span(
                f"process_batch {self._topic or table}",
                contexts.Context(),
                SpanKind.CONSUMER,
                attributes,
                [Link(parent) for parent in parents],
                begun,
            )
            context = self._span.get_span_context()
        self.context = context
        self._current = trace.NonRecordingSpan(context) if self._span is None else self._span

    def __del__(self) -> None:
        with suppress(Exception):  # the interpreter may be at its end
            self.end("queued_again")

    @property
    def sampled(self) -> bool:
        return self._span is not None

    def queued(self, begun: int, ended: int) -> None:
        self._child("queue", begun, ended)

    def decoded(self, begun: int, ended: int) -> None:
        for record in self.records.values():
            record.decoded = record.decoded or (begun, ended)
        self._child("decode", begun, ended)

    def narrowed(self, chunks: Sequence[Chunk], records: int) -> None:
        """It has been cut: these are left."""
        self._chunks = chunks
        if self._span is not None:
            self._span.set_attribute("messaging.batch.message_count", records)

    @contextmanager
    def attempt(self, handler: str, batch: Batch) -> Iterator[None]:
        """While a handler has this batch, or a piece of it: its span is the current one."""
        begun, current, span = time.time_ns(), self._current, None
        if self._span is not None:
            attributes: Attributes = {
                "binlane.handler": handler,
                "binlane.attempt": batch.attempt,
                "binlane.changes": len(batch.changes),
            }
            span = self._begun(f"handle {handler}", begun, SpanKind.INTERNAL, attributes)
            current = span
        batch.traced_by = _Passed(self, current.get_span_context())
        token = contexts.attach(trace.set_span_in_context(current))
        fault = None
        try:
            yield
        except AskAgain:  # nothing has failed
            raise
        except BaseException as error:
            fault = self._fault(error)
            raise
        finally:
            contexts.detach(token)
            ended = time.time_ns()
            if span is not None:
                _end(span, fault, ended)
            for (topic, partition, offset), record in self.records.items():
                first, last = batch.positions.get((topic, partition), (offset + 1, offset))
                if first <= offset <= last:
                    record.attempts.append(Attempt(handler, begun, ended, fault))

    def event(self, name: str, attributes: Attributes) -> None:
        """Something that happened to the batch."""
        if self._span is not None:
            self._span.add_event(name, attributes)

    def finished(self, now: int) -> dict[Assignment, int]:
        """All handlers are through with it. Returns what it waits for: the last offset of each partition."""
        self._finished = now
        for record in self.records.values():
            record.finished = now
        chunks, self._chunks = self._chunks, ()
        if self._span is None:
            return {}
        last = {chunk.assignment: chunk.messages[-1].offset() for chunk in chunks if chunk.messages}
        self._left = len(last)
        return last

    def committed(self, now: int) -> None:
        """One of the partitions has come beyond its last record there."""
        self._left -= 1
        if self._left > 0:
            return
        span = self._begun(
            f"commit {self._topic or ''}".rstrip(),
            self._finished,
            SpanKind.CLIENT,
            of_commit(self._topic, self._group),
        )
        span.end(max(now, self._finished))
        self.end("committed", now=now)

    def left(self, now: int) -> None:
        self.end("not_committed", now=now)

    def end(self, outcome: str, fault: Fault | None = None, now: int | None = None) -> None:
        """Its span ends, if it has not."""
        span, self._span = self._span, None
        self._chunks = ()
        if span is not None:
            span.set_attribute("binlane.outcome", outcome)
            _end(span, fault, now)

    def passed_on(self, place: Place) -> Mapping[str, str]:
        """The headers that tell of a record's trace: as it goes on here, else as its producer wrote them."""
        own = self.records.get(place)
        if own is not None:
            return told(own.span.get_span_context())
        if self._passed is None:
            self._passed = {
                (message.topic(), message.partition(), message.offset()): headers
                for chunk in self._chunks
                for message in chunk.messages
                if (headers := headers_of(message))
            }
        return self._passed.get(place, {})

    def _child(self, name: str, begun: int, ended: int) -> None:
        if self._span is not None:
            self._begun(name, begun, SpanKind.INTERNAL).end(max(begun, ended))

    def _begun(self, name: str, begun: int, kind: SpanKind, attributes: Attributes | None = None) -> Span:
        context = trace.set_span_in_context(self._current)
        return self._tracer.start_span(name, context, kind, attributes, None, begun)


class _Passed:
    """What a handler may pass on of the call that it is in."""

    __slots__ = ("_context", "_trace")

    def __init__(self, batch: BatchTrace, context: SpanContext) -> None:
        self._trace = batch
        self._context = context

    def of_batch(self) -> Mapping[str, str]:
        return told(self._context)

    def of_record(self, topic: str, partition: int, offset: int) -> Mapping[str, str]:
        return self._trace.passed_on((topic, partition, offset))


def _end(span: Span, fault: Fault | None, now: int | None) -> None:
    if fault is not None:
        span.add_event("exception", {"exception.type": fault.kind, "exception.message": fault.text}, now)
        span.set_attribute("error.type", fault.kind)
        span.set_status(Status(StatusCode.ERROR, fault.text))
    span.end(now)
