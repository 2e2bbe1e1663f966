"""A collector for tests: it takes OTLP over HTTP, as OpenTelemetry's own does, and keeps the spans."""

from __future__ import annotations

import gzip
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from servers.hook_server import HookServer, Received

__all__ = ["Collector", "SpanSeen", "traceparent"]

_KINDS = {1: "internal", 3: "client", 5: "consumer"}


class SpanSeen(NamedTuple):
    name: str
    trace_id: str
    span_id: str
    parent: str
    """The span id of its parent; empty for a root."""
    kind: str
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    links: list[tuple[str, str]]
    """(trace id, span id)"""
    begun: int
    ended: int
    error: str | None
    resource: dict[str, Any]


class Collector(HookServer):
    """`received` has the requests that it took."""

    def spans(self, name: str | None = None) -> list[SpanSeen]:
        """All that came, those that ended first before the others; or those of this name."""
        found = [span for request in list(self.received) for span in _spans(request)]
        return [span for span in found if name is None or span.name == name]

    def children(self, of: SpanSeen) -> dict[str, SpanSeen]:
        """{name: span}; the last of several with one name."""
        return {span.name: span for span in self.spans() if span.parent == of.span_id}


def traceparent(number: int, *, sampled: bool = True) -> str:
    """The header of a trace that a producer has begun."""
    return f"00-{number + 1:032x}-{number + 0xABC:016x}-{'01' if sampled else '00'}"


def _spans(request: Received) -> list[SpanSeen]:
    body = (
        gzip.decompress(request.body) if request.headers.get("content-encoding") == "gzip" else request.body
    )
    found = []
    for group in ExportTraceServiceRequest.FromString(body).resource_spans:
        resource = _attributes(group.resource.attributes)
        for scope in group.scope_spans:
            found += [_span(each, resource) for each in scope.spans]
    return found


def _span(span: Any, resource: dict[str, Any]) -> SpanSeen:
    return SpanSeen(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        _KINDS[span.kind],
        _attributes(span.attributes),
        [(event.name, _attributes(event.attributes)) for event in span.events],
        [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.status.message if span.status.code == 2 else None,
        resource,
    )


def _attributes(attributes: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    found = getattr(value, kind)
    return [_value(each) for each in found.values] if kind == "array_value" else found
