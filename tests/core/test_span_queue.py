"""Spans on their way to a collector: whoever ends one never waits, whatever the collector does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.context import Context
from prometheus_client import generate_latest
from servers.hook_server import Answer, Received
from servers.otlp_collector import Collector
from structlog.testing import capture_logs

from worker.configuration import TracingRule
from worker.local.broker_settings import free_port
from worker.observing.metrics import Metrics
from worker.tracing.provider import Spans, header_values, is_disabled
from worker.tracing.spans import parent_of, told


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        yield server


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def spans_to(url: str, metrics: Metrics, environment: dict[str, str] | None = None, **rule: Any) -> Spans:
    made = TracingRule.model_validate({"endpoint": url, "sample_ratio": 1.0, "timeout": "1s", **rule})
    return Spans(made, metrics, service="shop", environment=environment or {})


def end(spans: Spans, count: int) -> None:
    for number in range(count):
        spans.tracer.start_span(f"span {number}").end()


def count(metrics: Metrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(name, labels) or 0.0


def dropped(metrics: Metrics) -> float:
    reasons = ("queue_full", "export_failed", "too_many")
    return sum(count(metrics, "binlane_spans_dropped_total", reason=reason) for reason in reasons)


def wait(until: Any) -> None:
    give_up = time.monotonic() + 20
    while not until():
        assert time.monotonic() < give_up, "it did not come true"
        time.sleep(0.01)


def test_a_collector_that_cannot_be_reached_costs_a_counter_and_one_line(metrics: Metrics) -> None:
    spans = spans_to(f"http://127.0.0.1:{free_port()}", metrics, timeout="3s")
    with capture_logs() as logs:
        end(spans, 20_000)
        wait(lambda: logs)
        spans.queue.close(0.01)
        wait(lambda: dropped(metrics) == 20_000)
    assert count(metrics, "binlane_spans_exported_total") == 0
    [line] = logs
    assert (line["event"], line["log_level"]) == ("tracing_failed", "warning")
    assert "refused" in line["error"].lower()


def test_a_collector_that_comes_back_is_told_of_once_and_gets_what_ends_from_then_on(
    metrics: Metrics, collector: Collector
) -> None:
    collector.answer = lambda _: Answer(400)
    spans = spans_to(collector.url, metrics)
    with capture_logs() as logs:
        for _ in range(3):
            before = dropped(metrics)
            end(spans, 512)
            wait(lambda before=before: dropped(metrics) == before + 512)
        collector.answer = lambda _: Answer()
        end(spans, 2)
        spans.queue.close(10)
    assert [line["event"] for line in logs] == ["tracing_failed", "tracing_works_again"]
    assert [span.name for span in collector.spans()] == ["span 0", "span 1"]
    assert (count(metrics, "binlane_spans_exported_total"), dropped(metrics)) == (2, 3 * 512)


def test_a_collector_that_hangs_holds_up_nobody_and_not_the_end(
    metrics: Metrics, collector: Collector
) -> None:
    answers = threading.Event()
    asked = threading.Event()

    def hang(_: Received) -> Answer:
        asked.set()
        answers.wait(30)
        return Answer()

    collector.answer = hang
    spans = spans_to(collector.url, metrics, timeout="60s")
    try:
        end(spans, 600)
        assert asked.wait(20)
        end(spans, 10_000)
        # One request is on its way with up to 512 spans, and 4,096 are queued.
        assert count(metrics, "binlane_spans_dropped_total", reason="queue_full") >= 10_600 - 512 - 4_096
        began = time.monotonic()
        spans.queue.close(0.2)
        assert time.monotonic() - began < 10
    finally:
        answers.set()


def test_requests_have_the_configured_headers_and_go_where_otlp_is_taken(
    metrics: Metrics, collector: Collector
) -> None:
    spans = spans_to(collector.url, metrics, headers={"Authorization": "Bearer hunter22"})
    end(spans, 1)
    spans.queue.close(10)
    [request] = collector.received
    assert (request.method, request.path) == ("POST", "/v1/traces")
    assert request.headers["authorization"] == "Bearer hunter22"
    assert request.headers["content-type"] == "application/x-protobuf"
    assert collector.spans()[0].resource["service.name"] == "shop"
    assert "service.version" in collector.spans()[0].resource


def test_a_url_with_a_path_is_taken_as_it_is(metrics: Metrics, collector: Collector) -> None:
    spans = spans_to(f"{collector.url}/otlp/traces", metrics)
    end(spans, 1)
    spans.queue.close(10)
    assert [request.path for request in collector.received] == ["/otlp/traces"]


def test_opentelemetrys_own_variables_count_where_the_configuration_says_nothing(
    metrics: Metrics, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_EXPORTER_OTLP_HEADERS": "api-key=hunter22",
        "OTEL_SERVICE_NAME": "from-the-environment",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "0.25",
    }
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    spans = Spans(TracingRule(), metrics, service="shop", environment=told)
    assert spans.ratio == 0.25
    spans.provider.sampler._root = spans.provider.sampler._remote_parent_sampled  # type: ignore[attr-defined]
    end(spans, 1)
    spans.queue.close(10)
    [request] = collector.received
    assert (request.path, request.headers["api-key"]) == ("/v1/traces", "hunter22")
    resource = collector.spans()[0].resource
    assert resource["service.name"] == "from-the-environment"
    assert resource["deployment.environment.name"] == "test"
    assert list(header_values(told)) == ["hunter22"]


@pytest.mark.parametrize(
    ("sampler", "argument", "ratio"),
    [
        ("", "0.5", 0.01),
        ("always_on", "", 1.0),
        ("parentbased_always_off", "", 0.0),
        ("traceidratio", "0.5", 0.5),
        ("traceidratio", "", 1.0),
        ("traceidratio", "much", 0.01),
        ("jaeger_remote", "0.5", 0.01),
    ],
)
def test_the_share_of_batches_may_come_from_the_environment(
    sampler: str, argument: str, ratio: float, metrics: Metrics, collector: Collector
) -> None:
    environment = {"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": argument}
    spans = spans_to(collector.url, metrics, environment, sample_ratio=None)
    spans.queue.close(10)
    assert spans.ratio == ratio


def test_so_many_batches_are_chosen_as_the_ratio_says(metrics: Metrics, collector: Collector) -> None:
    spans = spans_to(collector.url, metrics, sample_ratio=0.25)
    chosen = sum(spans.tracer.start_span("root", Context()).is_recording() for _ in range(2_000))
    spans.queue.close(10)
    assert 380 < chosen < 620


def test_tracing_can_be_disabled_by_the_environment() -> None:
    assert is_disabled({"OTEL_SDK_DISABLED": "True"})
    assert not is_disabled({"OTEL_SDK_DISABLED": "no"})
    assert not is_disabled({})


TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("header", "is_one"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", True),
        (f"01-{TRACE}-{SPAN}-01-more", True),
        (f"00-{TRACE}-{SPAN}-01-more", False),
        (f"ff-{TRACE}-{SPAN}-01", False),
        (f"00-{'0' * 32}-{SPAN}-01", False),
        (f"00-{TRACE}-{'0' * 16}-01", False),
        (f"00-{TRACE.upper()}-{SPAN}-01", False),
        ("00-", False),
        ("", False),
    ],
)
def test_a_traceparent_is_read_as_w3c_says(header: str, is_one: bool) -> None:
    assert (parent_of([("traceparent", header.encode())]) is not None) is is_one


def passed_on(*headers: tuple[str, bytes | None]) -> dict[str, str] | None:
    parent = parent_of(headers)
    return None if parent is None else told(parent)


def test_headers_of_any_bytes_are_no_error() -> None:
    value = f"00-{TRACE}-{SPAN}-01"
    good = ("traceparent", value.encode())
    assert parent_of(None) is None
    assert passed_on(("traceparent", None)) is None
    assert passed_on(("traceparent", b"\xff\x00"), ("tracestate", b"a=1")) is None
    assert passed_on(good, ("tracestate", b"x" * 10_000)) == {"traceparent": value}
    assert passed_on(good, ("tracestate", b"\xff=1")) == {"traceparent": value}
    assert passed_on(good, ("tracestate", b"a=1")) == {"traceparent": value, "tracestate": "a=1"}


def test_what_is_exported_and_dropped_is_shown_from_the_beginning(metrics: Metrics) -> None:
    scrape = generate_latest(metrics.registry).decode()
    assert "\nbinlane_spans_exported_total 0.0\n" in scrape
    for reason in ("queue_full", "export_failed", "too_many"):
        assert f'\nbinlane_spans_dropped_total{{reason="{reason}"}} 0.0\n' in scrape
