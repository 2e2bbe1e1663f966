"""Spans on their way to the collector: queued within a bound, sent by a thread of their own."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from handlers.logs import get_logger
from worker.observing.metrics import Metrics

__all__ = ["SpanQueue"]

log = get_logger("tracing")

_MOST_QUEUED = 4096
_AT_ONCE = 512
_SECONDS = 1.0
"""Until what is queued is sent, be it ever so little."""
_LIBRARY = "opentelemetry"
_MOST_SAID, _LONGEST_SAID = 2, 300


class SpanQueue(SpanProcessor):
    """Takes the spans that have ended, and gives them to the collector. Whoever ends one never waits.

    What does not fit, and what the collector does not take, is counted and gone. `later` is for what else is
    to be done for tracing on the thread that sends.
    """

    def __init__(self, exporter: SpanExporter, metrics: Metrics) -> None:
        self._exporter = exporter
        self._metrics = metrics
        self._spans: deque[ReadableSpan] = deque()
        self._tasks: deque[Callable[[], None]] = deque()
        self._woken = threading.Event()
        self._closing = False
        self._failing = False
        self._said = _Said()
        self._thread = threading.Thread(target=self._run, name="tracing", daemon=True)
        self._thread.start()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing."""

    def on_end(self, span: ReadableSpan) -> None:
        context = span.get_span_context()
        if context is None or not context.trace_flags.sampled:
            return
        if len(self._spans) >= _MOST_QUEUED:
            self._metrics.spans_dropped("queue_full")
            return
        self._spans.append(span)
        if len(self._spans) >= _AT_ONCE:
            self._woken.set()

    def later(self, task: Callable[[], None]) -> None:
        """Have it done on the thread that sends; it raises nothing. Any thread."""
        self._tasks.append(task)

    def close(self, seconds: float) -> None:
        """Send what is queued, for so many seconds at most, and end the thread."""
        self._closing = True
        self._woken.set()
        self._thread.join(seconds)
        if self._thread.is_alive():  # a collector that does not answer: its request is given up
            self._exporter.shutdown()

    def shutdown(self) -> None:
        """The library's word for `close`; nothing is waited for."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True

    def _run(self) -> None:
        while True:
            self._woken.wait(_SECONDS)
            self._woken.clear()
            closing = self._closing
            while self._tasks:
                self._tasks.popleft()()
                self._send(_AT_ONCE)
            while self._spans:
                self._send(1)
            if closing:
                self._exporter.shutdown()
                return

    def _send(self, least: int) -> None:
        if len(self._spans) < least:
            return
        spans = [self._spans.popleft() for _ in range(min(_AT_ONCE, len(self._spans)))]
        self._said.texts.clear()
        try:
            taken = self._exporter.export(spans) is SpanExportResult.SUCCESS
            error = "; ".join(self._said.texts)
        except Exception as raised:  # what the library did not expect costs no more than these spans
            taken, error = False, f"{type(raised).__name__}: {raised}"
        if taken:
            self._metrics.spans_exported(len(spans))
            if self._failing:
                self._failing = False
                log.info("tracing_works_again")
            return
        self._metrics.spans_dropped("export_failed", len(spans))
        if not self._failing:
            self._failing = True
            log.warning(
                "tracing_failed",
                error=error or "the collector does not take them",
                hint="spans are dropped and counted until it does; records are not concerned",
            )


class _Said(logging.Handler):
    """What the library logs of a collector it cannot reach, kept instead of logged each time."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[str, None] = {}
        """Each once."""
        logger = logging.getLogger(_LIBRARY)
        logger.handlers[:] = [self]
        logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.texts) < _MOST_SAID:
            self.texts[record.getMessage()[:_LONGEST_SAID]] = None
