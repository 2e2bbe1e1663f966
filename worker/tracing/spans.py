"""Spans by OpenTelemetry's messaging conventions (1.30): attributes, and one record's part of a trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from offsets.types import TopicPartition
from worker.formats.interface import Record

Attributes = dict[str, AttributeValue]
Place = tuple[str, int, int]
"""Topic, partition, offset."""
Headers = Sequence[tuple[str, bytes | None]]

_TRACEPARENT = "traceparent"
_propagator = TraceContextTextMapPropagator()
_NAMES = frozenset(_propagator.fields)
_FLAGS, _AFTER_FLAGS = 54, 55
"""The index of the last digit of the flags."""
_SAMPLED = frozenset(bytes([digit]) for digit in b"13579bdf")


def of_record(record: Record, table: str, group: str) -> Attributes:
    """Return a record's attributes, without its key and value: those are data."""
    return {
        **_operation("process", "process", group),
        "messaging.destination.name": record.topic(),
        "messaging.destination.partition.id": str(record.partition()),
        "messaging.kafka.offset": record.offset(),
        "messaging.message.body.size": len(record),
        "binlane.table": table,
    }


def of_batch(partitions: Iterable[TopicPartition], records: int, table: str, group: str) -> Attributes:
    """Return a batch's attributes. The topic, or the partition, is included only if there is exactly one."""
    attributes = {
        **_operation("process_batch", "process", group),
        "messaging.batch.message_count": records,
        "binlane.table": table,
    }
    numbers = {each.partition for each in partitions}
    topics = {each.topic for each in partitions}
    if len(topics) == 1:
        attributes["messaging.destination.name"] = topics.pop()
        if len(numbers) == 1:
            attributes["messaging.destination.partition.id"] = str(numbers.pop())
    return attributes


def of_commit(topic: str | None, group: str) -> Attributes:
    """`topic`: None if there are several."""
    attributes = _operation("commit", "settle", group)
    if topic is not None:
        attributes["messaging.destination.name"] = topic
    return attributes


def _operation(name: str, kind: str, group: str) -> Attributes:
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.consumer.group.name": group,
    }


class Fault(NamedTuple):
    """Why a handler's call failed, without secrets."""

    kind: str
    """The error's type."""
    text: str

    def attributes(self) -> Attributes:
        return {"exception.type": self.kind, "exception.message": self.text}


def begin(tracer: Tracer, parent: Span, name: str, begun: int, attributes: Attributes | None = None) -> Span:
    """Begin a span below `parent`. Times are nanoseconds since 1970."""
    kind = SpanKind.CLIENT if attributes and "messaging.system" in attributes else SpanKind.INTERNAL
    return tracer.start_span(name, trace.set_span_in_context(parent), kind, attributes, None, begun)


def tell(
    tracer: Tracer, parent: Span, name: str, times: tuple[int, int], attributes: Attributes | None = None
) -> None:
    """Begin and end a span below `parent`."""
    begin(tracer, parent, name, times[0], attributes).end(max(times))


def end(span: Span, fault: Fault | None, now: int | None) -> None:
    """End a span, as failed if there is a fault."""
    if fault is not None:
        span.set_attribute("error.type", fault.kind)
        span.set_status(Status(StatusCode.ERROR, fault.text))
    span.end(now)


class Attempt(NamedTuple):
    """A handler's call. Times are nanoseconds since 1970."""

    handler: str
    begun: int
    ended: int
    fault: Fault | None


class RecordTrace:
    """Facts about one record until it is committed. Then they become spans.

    Processors write to it, one at a time. Another thread ends it, once no processor has the record any more.
    """

    def __init__(
        self,
        tracer: Tracer,
        parent: SpanContext,
        attributes: Attributes,
        *,
        place: Place,
        fetched: int,
        taken: int,
        batch: SpanContext | None,
    ) -> None:
        """`fetched`, `taken`: times, by the polling thread and by a processor. `batch`: the span to link."""
        self._tracer = tracer
        self.place = place
        self._topic = place[0]
        self._group = str(attributes["messaging.consumer.group.name"])
        self._fetched = fetched
        self._taken = taken
        self.decoded: tuple[int, int] | None = None
        """When decoding began and ended."""
        self.attempts: list[Attempt] = []
        self.finished: int | None = None
        """When all handlers had finished it."""
        self.span: Span = tracer.start_span(
            f"process {self._topic}",
            trace.set_span_in_context(trace.NonRecordingSpan(parent)),
            SpanKind.CONSUMER,
            attributes,
            [] if batch is None else [Link(batch)],
            fetched,
        )

    def committed(self, now: int) -> None:
        """Handle a commit beyond the record."""
        self._tell()
        if self.finished is not None:
            attributes = of_commit(self._topic, self._group)
            tell(self._tracer, self.span, f"commit {self._topic}", (self.finished, now), attributes)
        self._end("committed", now)

    def left(self, now: int) -> None:
        """Handle a revoked partition, or a stop: records that are not committed are read again."""
        self._tell()
        self._end("not_committed", now)

    def _end(self, outcome: str, now: int) -> None:
        self.span.set_attribute("binlane.outcome", outcome)
        self.span.end(now)

    def _tell(self) -> None:
        tell(self._tracer, self.span, "queue", (self._fetched, self._taken))
        if self.decoded is not None:
            tell(self._tracer, self.span, "decode", self.decoded)
        by_handler = attrgetter("handler")
        for handler, attempts in groupby(sorted(self.attempts, key=by_handler), by_handler):
            self._handled(handler, list(attempts))

    def _handled(self, handler: str, attempts: list[Attempt]) -> None:
        """Create one span from the first attempt to the last. Failed attempts are its events."""
        attributes: Attributes = {"binlane.handler": handler, "binlane.attempts": len(attempts)}
        span = begin(self._tracer, self.span, f"handle {handler}", attempts[0].begun, attributes)
        for number, attempt in enumerate(attempts, 1):
            if attempt.fault is not None:
                span.add_event("exception", attempt.fault.attributes() | {"attempt": number}, attempt.ended)
        end(span, attempts[-1].fault, attempts[-1].ended)


def is_sampled(headers: Headers) -> bool:
    """Whether the producer sampled its trace, by one digit of the header."""
    for name, value in headers:
        if name == _TRACEPARENT:
            return value is not None and value[_FLAGS:_AFTER_FLAGS] in _SAMPLED
    return False


def place_of(record: Record) -> tuple[str, int, int]:
    """Return (topic, partition, offset)."""
    return record.topic(), record.partition(), record.offset()


def parent_of(headers: Headers | None) -> SpanContext | None:
    """Return the span that these headers name; None: they name no span."""
    carrier = {
        name: value.decode("ascii", "replace") for name, value in headers or () if value and name in _NAMES
    }
    context = trace.get_current_span(_propagator.extract(carrier)).get_span_context()
    return context if context.is_valid else None


def told(context: SpanContext) -> dict[str, str]:
    """Return the headers that name this span."""
    headers: dict[str, str] = {}
    _propagator.inject(headers, trace.set_span_in_context(trace.NonRecordingSpan(context)))
    return headers
