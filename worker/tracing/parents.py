"""The trace that a record's producer began, as its headers tell (W3C Trace Context)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from opentelemetry import trace
from opentelemetry.trace import SpanContext, TraceFlags, TraceState

from worker.formats.interface import Record

__all__ = ["TRACEPARENT", "TRACESTATE", "headers_of", "is_sampled", "parent_in", "place_of", "told"]

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"

Headers = Sequence[tuple[str, bytes | None]]

_FORM = re.compile("([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_KNOWN_FLAGS = 0b11
"""Sampled, and random."""
_FLAGS, _AFTER_FLAGS = 54, 55
"""Where the last digit of the flags stands."""
_SAMPLED = frozenset(bytes([digit]) for digit in b"13579bdf")
_LONGEST_STATE = 512
"""Characters of a `tracestate` that have to be passed on."""


def headers_of(record: Record) -> dict[str, str]:
    """The record's `traceparent` and, beside it, `tracestate`; empty where it has none that can be read."""
    found: dict[str, str] = {}
    for name, value in record.headers() or ():
        if value and (name == TRACEPARENT or (name == TRACESTATE and len(value) <= _LONGEST_STATE)):
            found[name] = value.decode("ascii", "replace")
    return found if parent_in(found) is not None else {}


def is_sampled(headers: Headers) -> bool:
    """Whether the producer chose its trace, as far as can be seen without reading it."""
    for name, value in headers:
        if name == TRACEPARENT:
            return value is not None and value[_FLAGS:_AFTER_FLAGS] in _SAMPLED
    return False


def place_of(record: Record) -> tuple[str, int, int]:
    """Topic, partition, offset."""
    return record.topic(), record.partition(), record.offset()


def parent_in(headers: Mapping[str, str]) -> SpanContext | None:
    """The span that these headers tell of; None where they tell of none."""
    form = _FORM.fullmatch(headers.get(TRACEPARENT, ""))
    if form is None or form[1] == "ff" or (form[1] == "00" and form[5]):
        return None
    context = SpanContext(
        trace_id=int(form[2], 16),
        span_id=int(form[3], 16),
        is_remote=True,
        trace_flags=TraceFlags(int(form[4], 16) & _KNOWN_FLAGS),
        trace_state=TraceState.from_header([headers[TRACESTATE]]) if TRACESTATE in headers else None,
    )
    return context if context.is_valid else None


def told(context: SpanContext) -> dict[str, str]:
    """The headers that tell of this span."""
    trace_id, span_id = trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id)
    headers = {TRACEPARENT: f"00-{trace_id}-{span_id}-{context.trace_flags:02x}"}
    if context.trace_state:
        headers[TRACESTATE] = context.trace_state.to_header()
    return headers
