"""Spans on their way to the collector: batched and sent by OpenTelemetry's SDK, within a bound."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from handlers.logs import get_logger
from worker.observing.metrics import Metrics

log = get_logger("tracing")

_MOST_QUEUED = 4096
_AT_ONCE = 512
_MILLISECONDS = 1000
"""Spans wait no longer than this before they are sent."""
_LIBRARY = "opentelemetry"
_MOST_SAID, _LONGEST_SAID = 2, 300


class SpanQueue(SpanProcessor):
    """Passes ended spans to the SDK's batches. The thread that ends a span never waits.

    Spans that do not fit, and spans that the collector does not take, are dropped and counted.
    """

    def __init__(self, exporter: SpanExporter, metrics: Metrics) -> None:
        # The SDK drops spans in silence once its queue is full, so a span needs a free place first.
        self._free = threading.Semaphore(_MOST_QUEUED)
        self._metrics = metrics
        self._exporter = _Exporter(exporter, metrics, self._free)
        self._batches = BatchSpanProcessor(self._exporter, _MOST_QUEUED, _MILLISECONDS, _AT_ONCE)

    def on_end(self, span: ReadableSpan) -> None:
        if self._free.acquire(blocking=False):
            self._batches.on_end(span)
        else:
            self._metrics.spans_dropped("queue_full")

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Send all queued spans on this thread."""
        return self._batches.force_flush(timeout_millis)

    def close(self, seconds: float) -> None:
        """Send all queued spans, in at most `seconds`, and end the SDK's thread."""
        closing = threading.Thread(target=self._batches.shutdown, name="tracing-close", daemon=True)
        closing.start()
        closing.join(seconds)
        if closing.is_alive():  # the collector does not answer: end its request
            self._exporter.shutdown()


class _Exporter(SpanExporter):
    """Counts what the collector takes. Logs when it begins to fail, and when it works again."""

    def __init__(self, exporter: SpanExporter, metrics: Metrics, free: threading.Semaphore) -> None:
        self._exporter = exporter
        self._metrics = metrics
        self._free = free
        self._failing = False
        self._said = _Said()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._free.release(len(spans))
        self._said.texts.clear()
        try:
            result = self._exporter.export(spans)
            error = "; ".join(self._said.texts)
        except Exception as raised:
            result, error = SpanExportResult.FAILURE, f"{type(raised).__name__}: {raised}"
        is_failing = result is not SpanExportResult.SUCCESS
        if is_failing:
            self._metrics.spans_dropped("export_failed", len(spans))
        else:
            self._metrics.spans_exported(len(spans))
        if is_failing and not self._failing:
            log.warning(
                "tracing_failed",
                error=error or "the collector does not take them",
                hint="spans are dropped and counted until it does; records are not concerned",
            )
        elif self._failing and not is_failing:
            log.info("tracing_works_again")
        self._failing = is_failing
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


class _Said(logging.Handler):
    """Keeps what the SDK logs about a failing collector. The SDK would log it each time."""

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
