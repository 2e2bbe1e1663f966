"""Create the tracer and its exporter, from the configuration and from OpenTelemetry's environment variables.
OpenTelemetry's SDK batches and sends the spans, within a limit."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from urllib.parse import unquote, urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from handlers.logs import get_logger
from worker import __version__
from worker.configuration import TracingRule
from worker.observing.metrics import Metrics

log = get_logger("tracing")

_RATIO = 0.01
_PATH = "/v1/traces"
_MOST_QUEUED = 4096
_AT_ONCE = 512
_MILLISECONDS = 1000
"""The longest time that spans wait before they are sent."""
_LIBRARY = "opentelemetry"
_MOST_SAID, _LONGEST_SAID = 2, 300


def is_disabled(environment: Mapping[str, str]) -> bool:
    """Whether OTEL_SDK_DISABLED turns tracing off."""
    return environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def header_values(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of OTEL_EXPORTER_OTLP_HEADERS, which are secret."""
    for name in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"):
        for header in environment.get(name, "").split(","):
            value = unquote(header.partition("=")[2]).strip()
            yield from filter(None, (value, *value.split()[1:]))  # the token of Bearer TOKEN


class Spans:
    """The tracer. Its sampler selects the batches that are traced."""

    def __init__(
        self, rule: TracingRule, metrics: Metrics, *, service: str, environment: Mapping[str, str]
    ) -> None:
        """`service`: the worker's name, unless the environment sets another."""
        self.ratio = _ratio(environment) if rule.sample_ratio is None else rule.sample_ratio
        endpoint = rule.endpoint  # None: the environment sets it
        if endpoint is not None and urlsplit(endpoint).path in ("", "/"):
            endpoint = endpoint.rstrip("/") + _PATH
        exporter = OTLPSpanExporter(endpoint=endpoint, headers=rule.headers or None, timeout=rule.timeout)
        self.queue = SpanQueue(exporter, metrics)
        provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(self.ratio)),
            resource=Resource.create(_resource(service, environment)),
            shutdown_on_exit=False,
        )
        provider.add_span_processor(self.queue)
        self.tracer = provider.get_tracer("binlane", __version__)
        self.provider = provider


def _ratio(environment: Mapping[str, str]) -> float:
    """Read OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG. For unknown values, use binlane's default."""
    sampler = environment.get("OTEL_TRACES_SAMPLER", "").strip().lower().removeprefix("parentbased_")
    if sampler in ("always_on", "always_off"):
        return 1.0 if sampler == "always_on" else 0.0
    if sampler == "traceidratio":
        with suppress(ValueError):
            return min(1.0, max(0.0, float(environment.get("OTEL_TRACES_SAMPLER_ARG") or 1)))
    return _RATIO


def _resource(service: str, environment: Mapping[str, str]) -> dict[str, str]:
    own = {"service.version": __version__}
    named = "service.name=" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "").replace(" ", "")
    return own if named or environment.get("OTEL_SERVICE_NAME") else {"service.name": service, **own}


class SpanQueue(SpanProcessor):
    """Passes ended spans to the SDK's batches. The thread that ends a span never waits.

    Spans that do not fit, or that the collector does not accept, are dropped and counted."""

    def __init__(self, exporter: SpanExporter, metrics: Metrics) -> None:
        # The SDK drops spans silently when its queue is full, so each span first takes a free slot.
        self._free = threading.Semaphore(_MOST_QUEUED)
        self._metrics = metrics
        self._exporter = _Exporter(exporter, metrics, self._free)
        self._batches = BatchSpanProcessor(self._exporter, _MOST_QUEUED, _MILLISECONDS, _AT_ONCE)

    def on_end(self, span: ReadableSpan) -> None:
        if self._free.acquire(blocking=False):
            self._batches.on_end(span)
        else:
            self._metrics.count("binlane_spans_dropped_total", "queue_full")

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Send all queued spans on this thread."""
        return self._batches.force_flush(timeout_millis)

    def close(self, seconds: float) -> None:
        """Send all queued spans in at most `seconds`, and end the SDK's thread."""
        closing = threading.Thread(target=self._batches.shutdown, name="tracing-close", daemon=True)
        closing.start()
        closing.join(seconds)
        if closing.is_alive():  # the collector does not answer: cancel the request
            self._exporter.shutdown()


class _Exporter(SpanExporter):
    """Counts the spans that the collector accepts. Logs when it starts to fail, and when it works again."""

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
            self._metrics.count("binlane_spans_dropped_total", "export_failed", amount=len(spans))
        else:
            self._metrics.count("binlane_spans_exported_total", amount=len(spans))
        if is_failing and not self._failing:
            log.warning(
                "tracing_failed",
                error=error or "the collector does not accept them",
                hint="spans are dropped and counted until it does; records are not affected",
            )
        elif self._failing and not is_failing:
            log.info("tracing_works_again")
        self._failing = is_failing
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


class _Said(logging.Handler):
    """Collects what the SDK logs about a failing collector. The SDK would log it each time."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[str, None] = {}
        """Without duplicates."""
        logger = logging.getLogger(_LIBRARY)
        logger.handlers[:] = [self]
        logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.texts) < _MOST_SAID:
            self.texts[record.getMessage()[:_LONGEST_SAID]] = None
