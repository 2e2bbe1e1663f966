"""The tracer, and where its spans go: from the configuration, and from OpenTelemetry's own variables of the
environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from urllib.parse import unquote, urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from worker import __version__
from worker.configuration import TracingRule
from worker.observing.metrics import Metrics
from worker.tracing.exporting import SpanQueue

_RATIO = 0.01
_PATH = "/v1/traces"


def is_disabled(environment: Mapping[str, str]) -> bool:
    """Whether OTEL_SDK_DISABLED says that nothing is to be traced."""
    return environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def header_values(environment: Mapping[str, str]) -> Iterator[str]:
    """What OTEL_EXPORTER_OTLP_HEADERS holds, which is secret."""
    for name in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"):
        for header in environment.get(name, "").split(","):
            value = unquote(header.partition("=")[2]).strip()
            yield from filter(None, (value, *value.split()[1:]))  # Bearer TOKEN


class Spans:
    """The tracer, whose sampler chooses which batches are traced."""

    def __init__(
        self, rule: TracingRule, metrics: Metrics, *, service: str, environment: Mapping[str, str]
    ) -> None:
        """`service`: the worker's name, unless the environment gives another."""
        self.ratio = _ratio(environment) if rule.sample_ratio is None else rule.sample_ratio
        exporter = OTLPSpanExporter(
            endpoint=_endpoint(rule.endpoint), headers=rule.headers or None, timeout=rule.timeout
        )
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
    """As OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG say; of what they do not know, binlane's own."""
    sampler = environment.get("OTEL_TRACES_SAMPLER", "").strip().lower().removeprefix("parentbased_")
    if sampler in ("always_on", "always_off"):
        return 1.0 if sampler == "always_on" else 0.0
    if sampler == "traceidratio":
        with suppress(ValueError):
            return min(1.0, max(0.0, float(environment.get("OTEL_TRACES_SAMPLER_ARG") or 1)))
    return _RATIO


def _endpoint(url: str | None) -> str | None:
    """None: as the environment tells."""
    if url is None or urlsplit(url).path not in ("", "/"):
        return url
    return url.rstrip("/") + _PATH


def _resource(service: str, environment: Mapping[str, str]) -> dict[str, str]:
    own = {"service.version": __version__}
    named = "service.name=" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "").replace(" ", "")
    return own if named or environment.get("OTEL_SERVICE_NAME") else {"service.name": service, **own}
