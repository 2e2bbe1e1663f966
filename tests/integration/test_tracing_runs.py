"""A worker with a real Kafka and a collector: a trace that a producer began goes on to the targets."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import Producer
from integration.process import eventually
from integration.source import canal_insert
from integration.stage import Stage
from servers.hook_server import HookServer
from servers.otlp_collector import Collector, SpanSeen, traceparent
from topic_messages import messages

from worker.local.broker import Broker

SECRET = "hunter22-hunter22"


def produce(stage: Stage, table: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": stage.bootstrap_servers, "enable.idempotence": True})
    for number in numbers:
        headers: list[tuple[str, str | bytes | None]] = [("traceparent", traceparent(number))]
        producer.produce(stage.topic, canal_insert(table, [number]), headers=headers, partition=0)
    assert producer.flush(20) == 0


def test_a_trace_goes_on_from_the_producer_through_the_worker_to_its_targets(
    stage: Stage, broker: Broker
) -> None:
    out = f"{stage.topic}.out"
    broker.create_topic(out, 1)
    with Collector() as collector, HookServer() as hook:
        handlers: list[dict[str, Any]] = [
            stage.recording(),
            {"type": "webhook", "url": hook.url},
            {"type": "kafka", "bootstrap_servers": stage.bootstrap_servers, "topic": out},
        ]
        tracing = {"endpoint": collector.url, "headers": {"x-team": SECRET}, "sample_ratio": 1.0}
        worker = stage.worker(handlers=handlers, tracing=tracing).start()
        produce(stage, "t0", range(5))
        eventually(lambda: len(collector.spans("process " + stage.topic)) == 5, what="all records' spans")
        taken = len(collector.spans())  # counted only after the collector has answered
        eventually(lambda: worker.metric("binlane_spans_exported_total") >= taken, what="the count of spans")
        assert worker.sigterm() == 0

    own = {int(each.trace_id, 16) - 1: each for each in collector.spans("process " + stage.topic)}
    assert sorted(own) == list(range(5))
    for number, span in own.items():
        assert span.parent == traceparent(number).split("-")[2]
        assert span.resource["service.name"] == "worker"
        assert span.attributes["binlane.outcome"] == "committed"
        children = collector.children(span)
        assert {"queue", "decode", "handle webhook", "handle kafka", f"commit {stage.topic}"} < set(children)
        assert all(span.begun <= each.begun <= each.ended <= span.ended for each in children.values())

    sent = {
        int(json.loads(message.value() or b"")["after"]["id"]): dict(message.headers() or ())["traceparent"]
        for message in messages(stage.bootstrap_servers, out)
    }
    assert sent == {n: f"00-{span.trace_id}-{span.span_id}-01".encode() for n, span in own.items()}
    calls = {f"00-{each.trace_id}-{each.span_id}-03" for each in attempts(collector, "handle webhook")}
    assert {request.headers["traceparent"] for request in hook.received} == calls
    assert {request.headers["x-team"] for request in collector.received} == {SECRET}
    assert SECRET not in worker.log_text()


def attempts(collector: Collector, name: str) -> list[SpanSeen]:
    """Those of batches."""
    return [each for each in collector.spans(name) if "binlane.attempt" in each.attributes]


def test_a_collector_that_is_away_changes_nothing_but_a_counter(stage: Stage) -> None:
    with Collector() as collector:
        url = collector.url
    worker = stage.worker(tracing={"endpoint": url, "sample_ratio": 1.0, "timeout": "300ms"}).start()
    produce(stage, "t0", range(20))
    stage.wait_rows(20)
    stage.wait_committed_to_the_end()
    eventually(lambda: worker.metric("binlane_spans_dropped_total", reason="export_failed"))
    assert worker.healthy()
    assert worker.sigterm() == 0
    assert len(worker.logged("tracing_failed")) == 1


def test_without_tracing_nothing_of_it_is_imported(stage: Stage) -> None:
    handler = {"type": "modules_loaded:ModulesLoaded", "file": str(stage.folder / "modules")}
    worker = stage.worker(handlers=[handler]).start()
    produce(stage, "t0", range(1))
    stage.wait_committed_to_the_end()
    assert worker.sigterm() == 0
    loaded = (stage.folder / "modules").read_text().split()
    assert "worker.processing.processor" in loaded
    assert [name for name in loaded if name.startswith(("opentelemetry", "worker.tracing"))] == []
