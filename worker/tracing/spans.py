"""What spans of batches and of records have in common."""

from __future__ import annotations

from typing import NamedTuple

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

from worker.tracing.attributes import Attributes

Place = tuple[str, int, int]
"""Topic, partition, offset."""


class Fault(NamedTuple):
    """Why a call of a handler failed, without secrets."""

    kind: str
    """The error's type."""
    text: str

    def attributes(self) -> Attributes:
        return {"exception.type": self.kind, "exception.message": self.text}


def begin(tracer: Tracer, parent: Span, name: str, begun: int, attributes: Attributes | None = None) -> Span:
    """Begin a span below `parent`. Its times are nanoseconds since 1970."""
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
