"""One record's share in the trace that its producer began: from its fetch to its commit."""

from __future__ import annotations

from typing import NamedTuple

from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, Tracer

from worker.tracing.attributes import Attributes, of_commit

__all__ = ["Attempt", "Fault", "Place", "RecordTrace"]

Place = tuple[str, int, int]
"""Topic, partition, offset."""


class Fault(NamedTuple):
    """Why a call of a handler failed, without secrets."""

    kind: str
    """The error's type."""
    text: str


class Attempt(NamedTuple):
    """A call of a handler. Times are nanoseconds since 1970."""

    handler: str
    begun: int
    ended: int
    fault: Fault | None


class RecordTrace:
    """What is known of one record until it is committed; then it becomes spans.

    Processors write, one at a time; it is ended on another thread, when nothing of it runs any more.
    """

    __slots__ = (
        "_fetched",
        "_group",
        "_taken",
        "_topic",
        "_tracer",
        "attempts",
        "decoded",
        "finished",
        "place",
        "span",
    )

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
        """`fetched`, `taken`: by the thread that polls, by a processor. `batch`: its span is linked to."""
        self._tracer = tracer
        self.place = place
        self._topic = str(attributes["messaging.destination.name"])
        self._group = str(attributes["messaging.consumer.group.name"])
        self._fetched = fetched
        self._taken = taken
        self.decoded: tuple[int, int] | None = None
        """When that began and ended."""
        self.attempts: list[Attempt] = []
        self.finished: int | None = None
        """When all handlers were through with it."""
        self.span: Span = tracer.start_span(
            f"process {self._topic}",
            trace.set_span_in_context(trace.NonRecordingSpan(parent)),
            SpanKind.CONSUMER,
            attributes,
            [] if batch is None else [Link(batch)],
            fetched,
        )

    def committed(self, now: int) -> None:
        """Kafka has an offset behind it."""
        self._tell()
        if self.finished is not None:
            self._child(f"commit {self._topic}", self.finished, now, of_commit(self._topic, self._group))
        self._end("committed", now)

    def left(self, now: int) -> None:
        """Its partition is another worker's, or this one stops: whatever is not committed comes again."""
        self._tell()
        self._end("not_committed", now)

    def _end(self, outcome: str, now: int) -> None:
        self.span.set_attribute("binlane.outcome", outcome)
        self.span.end(now)

    def _tell(self) -> None:
        self._child("queue", self._fetched, self._taken)
        if self.decoded is not None:
            self._child("decode", *self.decoded)
        by_handler: dict[str, list[Attempt]] = {}
        for attempt in list(self.attempts):
            by_handler.setdefault(attempt.handler, []).append(attempt)
        for handler, attempts in by_handler.items():
            self._handled(handler, attempts)

    def _handled(self, handler: str, attempts: list[Attempt]) -> None:
        """One span from the first attempt to the last; those that failed are its events."""
        attributes: Attributes = {"binlane.handler": handler, "binlane.attempts": len(attempts)}
        span = self._begun(f"handle {handler}", attempts[0].begun, attributes)
        for number, attempt in enumerate(attempts, 1):
            if attempt.fault is not None:
                kind, text = attempt.fault
                told: Attributes = {"exception.type": kind, "exception.message": text, "attempt": number}
                span.add_event("exception", told, attempt.ended)
        last = attempts[-1].fault
        if last is not None:
            span.set_attribute("error.type", last.kind)
            span.set_status(Status(StatusCode.ERROR, last.text))
        span.end(attempts[-1].ended)

    def _child(self, name: str, begun: int, ended: int, attributes: Attributes | None = None) -> None:
        self._begun(name, begun, attributes).end(max(begun, ended))

    def _begun(self, name: str, begun: int, attributes: Attributes | None) -> Span:
        kind = (
            SpanKind.INTERNAL
            if attributes is None or "messaging.system" not in attributes
            else SpanKind.CLIENT
        )
        context = trace.set_span_in_context(self.span)
        return self._tracer.start_span(name, context, kind, attributes, None, begun)
