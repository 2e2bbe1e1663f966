"""Attributes of batches' and records' spans, by OpenTelemetry's messaging conventions (1.30)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.util.types import AttributeValue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offsets.types import TopicPartition
    from worker.formats.interface import Record

Attributes = dict[str, AttributeValue]
Place = tuple[str, int, int]
"""Topic, partition, offset."""


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
