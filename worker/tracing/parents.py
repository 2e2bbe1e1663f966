"""Read the trace that a record's producer began from its headers (W3C Trace Context)."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.trace import SpanContext
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from worker.formats.interface import Record

Headers = Sequence[tuple[str, bytes | None]]

_TRACEPARENT = "traceparent"
_propagator = TraceContextTextMapPropagator()
_NAMES = frozenset(_propagator.fields)
_FLAGS, _AFTER_FLAGS = 54, 55
"""The index of the last digit of the flags."""
_SAMPLED = frozenset(bytes([digit]) for digit in b"13579bdf")


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
