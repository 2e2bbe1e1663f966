"""What a processor tells of records and batches, as a collector gets it."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import canal_packets
import pytest
import test_processor
import test_processor_records
import test_row_order_processor
from building import Scripted, chunk, delivery, record, unit
from opentelemetry import trace
from processing import BAD, NOW, Stage, raising
from row_building import Routed, row_unit, rows
from servers.hook_server import Answer
from servers.otlp_collector import Collector, SpanSeen, traceparent

from handlers import Batch, StopWorker
from handlers.failures import AskAgain
from offsets.types import Checkpoint
from worker.configuration import TracingRule
from worker.observing.metrics import Metrics
from worker.processing.traced import TracedProcessor
from worker.tracing import tracing as worker_tracing
from worker.tracing.tracing import Tracing
from worker.units.unit import Unit, UnitState

GROUP = "shop-replica"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        yield server


@pytest.fixture
def traced(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Tracing]]:
    """Stages trace from now on. Closing the tracing sends all its spans, however slow the machine is."""
    monkeypatch.setattr("worker.tracing.tracing._CLOSE_SECONDS", 60.0)
    made: list[Tracing] = []

    def make(**rule: Any) -> Tracing:
        metrics = Metrics()
        tracing = Tracing(
            TracingRule.model_validate({"endpoint": collector.url, "sample_ratio": 1.0, **rule}),
            metrics,
            worker="shop",
            group=GROUP,
            redact=lambda text: text.replace("hunter22", "***"),
            environment={},
        )
        made.append(tracing)
        monkeypatch.setattr(Stage, "processor", partial(TracedProcessor, tracing=tracing))
        return tracing

    yield make
    for each in made:
        each.close()


def offer(
    stage: Stage, to: Unit, offsets: Iterable[int], *, sampled: bool = True, parents: bool = True
) -> None:
    def headers(offset: int) -> list[tuple[str, bytes]]:
        told = traceparent(offset, sampled=sampled).encode()
        return [("traceparent", told), ("tracestate", b"shop=1")] if parents else [("other", b"x")]

    records = [record(offset, to.table.name, headers=headers(offset)) for offset in offsets]
    assert stage.lanes.offer(delivery((to, chunk(stage.partition, records))))


def commit(stage: Stage, tracing: Tracing) -> None:
    """As the committer does."""
    checkpoint = stage.checkpoint()
    assert checkpoint is not None
    stage.partition.committed = checkpoint.offset
    tracing.committed([stage.partition])


def told(collector: Collector, tracing: Tracing) -> list[SpanSeen]:
    tracing.close()
    return collector.spans()


def test_a_record_goes_on_with_its_producers_trace_from_its_fetch_to_its_commit(
    traced: Callable[..., Tracing], collector: Collector
) -> None:
    tracing = traced()
    stage, handler = Stage(), Scripted()
    table = unit("orders", handler)
    offer(stage, table, range(2))
    fetched = int(table.chunks[0].fetched * 1e9)
    stage.run(table)
    finished = time.time_ns()
    commit(stage, tracing)
    told(collector, tracing)
    batch, *others = collector.spans("process_batch cdc.shop")
    assert others == []
    for own in collector.spans("process cdc.shop"):
        offset = own.attributes["messaging.kafka.offset"]
        assert (own.trace_id, own.parent) == (f"{offset + 1:032x}", f"{offset + 0xABC:016x}")
        assert (own.kind, own.begun) == ("consumer", fetched)
        assert own.links == [(batch.trace_id, batch.span_id)]
        assert own.attributes == {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": GROUP,
            "messaging.destination.name": "cdc.shop",
            "messaging.destination.partition.id": "0",
            "messaging.kafka.offset": offset,
            "messaging.message.body.size": len(record(offset)),
            "binlane.table": "shop.orders",
            "binlane.outcome": "committed",
        }
        children = collector.children(own)
        assert list(children) == ["queue", "decode", "handle h0", "commit cdc.shop"]
        assert {each.trace_id for each in children.values()} == {own.trace_id}
        assert own.begun == children["queue"].begun <= children["queue"].ended <= children["decode"].begun
        assert children["decode"].ended <= children["handle h0"].begun
        assert children["handle h0"].ended <= children["commit cdc.shop"].begun <= finished
        assert finished <= children["commit cdc.shop"].ended == own.ended
        assert children["commit cdc.shop"].attributes["messaging.operation.type"] == "settle"
    assert len(collector.spans("process cdc.shop")) == 2


def test_a_batch_tells_of_all_its_records_and_is_linked_to_their_traces(
    traced: Callable[..., Tracing], collector: Collector
) -> None:
    tracing = traced()
    stage = Stage()
    table = unit("orders")
    offer(stage, table, range(3), sampled=False)
    stage.run(table)
    commit(stage, tracing)
    spans = told(collector, tracing)
    [batch] = collector.spans("process_batch cdc.shop")
    assert {each.name for each in spans} == {batch.name, "queue", "decode", "handle h0", "commit cdc.shop"}
    assert (batch.parent, batch.kind) == ("", "consumer")
    assert batch.links == [(f"{offset + 1:032x}", f"{offset + 0xABC:016x}") for offset in range(3)]
    assert batch.attributes["messaging.batch.message_count"] == 3
    assert batch.attributes["messaging.operation.name"] == "process_batch"
    assert batch.attributes["binlane.outcome"] == "committed"
    assert list(collector.children(batch)) == ["queue", "decode", "handle h0", "commit cdc.shop"]
    assert batch.resource["service.name"] == "shop"


def test_a_failed_attempt_is_an_error_of_the_batch_and_an_event_of_the_record_without_secrets(
    traced: Callable[..., Tracing], collector: Collector
) -> None:
    tracing = traced()
    stage = Stage()
    table = unit("orders", Scripted(raising(ValueError("no hunter22"), times=2)), retry=NOW)
    offer(stage, table, [0])
    stage.run(table)
    commit(stage, tracing)
    told(collector, tracing)
    [batch] = collector.spans("process_batch cdc.shop")
    attempts = [each for each in collector.spans("handle h0") if each.parent == batch.span_id]
    assert [each.attributes["binlane.attempt"] for each in attempts] == [1, 2, 3]
    assert [each.error for each in attempts] == ["no ***", "no ***", None]
    assert attempts[0].events == [
        ("exception", {"exception.type": "ValueError", "exception.message": "no ***"})
    ]
    assert [name for name, _ in batch.events] == ["retry", "retry"]
    [own] = collector.spans("process cdc.shop")
    handled = collector.children(own)["handle h0"]
    assert (handled.error, handled.attributes["binlane.attempts"]) == (None, 3)
    assert [(name, attributes["attempt"]) for name, attributes in handled.events] == [
        ("exception", 1),
        ("exception", 2),
    ]
    assert b"hunter22" not in b"".join(request.body for request in collector.received)


def test_a_batch_that_is_to_be_asked_for_again_has_failed_nowhere(
    traced: Callable[..., Tracing], collector: Collector
) -> None:
    tracing = traced()
    stage = Stage()
    table = unit("orders", Scripted(raising(AskAgain(0.001), times=2)), retry=NOW)
    offer(stage, table, [0])
    stage.run(table)
    commit(stage, tracing)
    told(collector, tracing)
    calls = collector.spans("handle h0")
    assert len(calls) == 4  # three of the batch's, and the record's own
    assert [(each.error, each.events) for each in calls] == [(None, [])] * 4


def test_what_was_not_chosen_is_not_told_but_records_whose_producers_chose_them(
    traced: Callable[..., Tracing], collector: Collector
) -> None:
    tracing = traced(sample_ratio=0.0)
    stage = Stage()
    chosen, other, plain = unit("orders"), unit("stock"), unit("plain")
    offer(stage, chosen, [0])
    offer(stage, other, [1], sampled=False)
    offer(stage, plain, [2], parents=False)
    stage.run(chosen, other, plain)
    commit(stage, tracing)
    told(collector, tracing)
    [own] = [each for each in collector.spans() if each.kind == "consumer"]
    assert (own.attributes["messaging.kafka.offset"], own.links) == (0, [])


@pytest.mark.parametrize(
    ("rule", "own"), [({"records_per_second": 1000}, 100), ({"records_per_second": 7}, 7)]
)
def test_few_records_of_a_batch_and_of_a_second_have_traces_of_their_own(
    rule: dict[str, Any], own: int, traced: Callable[..., Tracing], collector: Collector, monkeypatch: Any
) -> None:
    tracing = traced(**rule)
    monkeypatch.setattr("worker.tracing.tracing.time.monotonic", lambda: 7.0)
    stage = Stage()
    table = unit("orders", batch={"max_records": 250})
    offer(stage, table, range(250))
    stage.run(table)
    commit(stage, tracing)
    told(collector, tracing)
    assert len(collector.spans("process cdc.shop")) == own
    [batch] = collector.spans("process_batch cdc.shop")
    assert len(batch.links) == 128
    assert dropped(tracing, "too_many") == 250 - own


def test_a_record_that_is_finished_ahead_waits_for_what_is_before_it(
    traced: Callable[..., Tracing], collector: Collector
) -> None:
    tracing = traced()
    stage = Stage()
    failing = unit("orders", Scripted(raising(ValueError("not yet"))), retry={"initial_delay": 60.0})
    ahead = unit("stock")
    offer(stage, failing, [0])
    offer(stage, ahead, [1])
    stage.run(until=lambda: ahead.finished_records and failing.state is UnitState.BACKOFF)
    commit(stage, tracing)
    told(collector, tracing)
    outcomes = {
        each.attributes["messaging.kafka.offset"]: each.attributes["binlane.outcome"]
        for each in collector.spans("process cdc.shop")
    }
    assert outcomes == {0: "not_committed", 1: "not_committed"}


def test_a_commit_of_more_spans_than_the_queue_takes_loses_none(
    traced: Callable[..., Tracing], collector: Collector
) -> None:
    tracing = traced(records_per_second=100_000, sample_ratio=0.0)
    stage, tables = Stage(), [unit(f"orders{number}") for number in range(15)]
    for number, table in enumerate(tables):
        offer(stage, table, range(number * 100, number * 100 + 100))
    stage.run(*tables)
    commit(stage, tracing)
    told(collector, tracing)
    assert len(collector.spans()) == 5 * 1_500
    assert dropped(tracing, "queue_full") == 0


def test_a_collector_that_hangs_does_not_hold_up_the_end(
    traced: Callable[..., Tracing], collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.tracing.tracing._CLOSE_SECONDS", 0.3)
    answers = threading.Event()
    collector.answer = lambda _: answers.wait(30) and Answer()
    tracing = traced(records_per_second=1_000, timeout="60s")
    stage, table = Stage(), unit("orders")
    offer(stage, table, range(250))
    stage.run(table)
    commit(stage, tracing)
    try:
        began = time.monotonic()
        tracing.close()
        assert time.monotonic() - began < 5
    finally:
        answers.set()


def dropped(tracing: Tracing, reason: str) -> float:
    value = tracing._metrics.registry.get_sample_value("binlane_spans_dropped_total", {"reason": reason})
    assert value is not None
    return value


def test_what_a_partition_takes_along_is_told_as_not_committed(
    traced: Callable[..., Tracing], collector: Collector
) -> None:
    tracing = traced()
    stage = Stage()
    table = unit("orders", Scripted(raising(ValueError("never"))), retry={"initial_delay": 60.0})
    offer(stage, table, [0])
    stage.run(until=lambda: table.state is UnitState.BACKOFF)
    stage.partition.closed = True
    tracing.committed([])
    told(collector, tracing)
    [own] = collector.spans("process cdc.shop")
    assert own.attributes["binlane.outcome"] == "not_committed"
    assert list(collector.children(own)) == ["queue", "decode", "handle h0"]
    assert collector.children(own)["handle h0"].error == "never"


def test_a_halted_batch_says_so_and_one_that_goes_on_later_is_told_anew(
    traced: Callable[..., Tracing], collector: Collector
) -> None:
    tracing = traced()
    stage = Stage()
    table = unit("orders", Scripted(raising(ValueError("never"))), retry=NOW | {"max_attempts": 1})
    offer(stage, table, [0])
    stage.run(table)
    assert table.state is UnitState.HALTED
    told(collector, tracing)
    [batch] = collector.spans("process_batch cdc.shop")
    assert batch.attributes["binlane.outcome"] == "halted"
    assert batch.error == "ValueError: never (handler h0)"


def test_a_skipped_change_is_an_event(traced: Callable[..., Tracing], collector: Collector) -> None:
    tracing = traced()
    stage = Stage()
    failing = Scripted(raising(ValueError("never")))
    table = unit("orders", failing, retry=NOW | {"max_attempts": 1}, on_failure="skip")
    offer(stage, table, [0])
    stage.run(table)
    commit(stage, tracing)
    told(collector, tracing)
    [batch] = collector.spans("process_batch cdc.shop")
    assert [name for name, _ in batch.events] == ["skipped"]
    assert batch.attributes["binlane.outcome"] == "committed"


def test_a_batch_that_is_cut_at_a_bad_record_tells_what_is_left(
    traced: Callable[..., Tracing], collector: Collector
) -> None:
    tracing = traced()
    stage = Stage()
    table = unit("orders")
    stage.offer((table, [0, 1, BAD, 3]))
    stage.run(table)
    assert table.state is UnitState.HALTED
    commit(stage, tracing)
    told(collector, tracing)
    found = [
        (each.attributes["messaging.batch.message_count"], each.attributes["binlane.outcome"])
        for each in collector.spans("process_batch cdc.shop")
    ]
    assert sorted(found) == [(2, "committed"), (2, "halted")]


def test_a_record_whose_rows_are_spread_over_shards_has_one_trace(
    traced: Callable[..., Tracing], collector: Collector
) -> None:
    tracing = traced()
    stage, handler = Stage(lanes=4), Scripted()
    table = row_unit("orders", handler)
    spread = rows(0, *range(8))
    spread.set_headers([("traceparent", traceparent(0).encode())])  # type: ignore[attr-defined]
    assert stage.lanes.offer(delivery((table, chunk(stage.partition, [spread]))))
    stage.run(until=lambda: table.shards is not None and table.shards.finished_records)
    commit(stage, tracing)
    told(collector, tracing)
    [own] = collector.spans("process cdc.shop")
    calls = len(handler.batches)
    assert calls > 1
    assert collector.children(own)["handle h0"].attributes["binlane.attempts"] == calls
    outcomes = {each.attributes["binlane.outcome"] for each in collector.spans("process_batch cdc.shop")}
    assert outcomes == {"spread", "committed"}


def test_pieces_of_one_record_share_its_trace_and_take_no_room_for_good(
    traced: Callable[..., Tracing], collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_tracing, "_MOST_WAITING", 4)
    tracing = traced()
    stage, count = Stage(), 8
    routed = Routed({"match": "shop.a"}, order_by="table", lanes=1)
    piece = canal_packets.rows("a", canal_packets.row({"id": "1"}))
    value = canal_packets.packet(piece, canal_packets.ddl("b", "ALTER TABLE b ADD x int"), piece)
    stage.start()
    for offset in range(count):
        headers = [("traceparent", traceparent(offset).encode())]
        one = record(offset, value=value, headers=headers)
        assert stage.lanes.offer(routed.poll((stage.partition, [one])))
        stage.wait(lambda end=offset + 1: stage.checkpoint() == Checkpoint(end))  # type: ignore[misc]
        commit(stage, tracing)
    stage.stop()
    told(collector, tracing)
    assert len(collector.spans("process cdc.shop")) == count


def test_a_handler_may_pass_on_the_batchs_trace_and_each_records(
    traced: Callable[..., Tracing], collector: Collector
) -> None:
    tracing = traced(records_per_second=1)
    seen: list[Any] = []

    def script(batch: Batch) -> None:
        current = trace.get_current_span().get_span_context()
        seen.append((current, batch.trace_headers(), [batch.trace_headers(each) for each in batch.changes]))

    stage = Stage()
    table = unit("orders", Scripted(script))
    offer(stage, table, range(2))
    stage.run(table)
    commit(stage, tracing)
    told(collector, tracing)
    [(current, of_batch, [gone_on, passed_on])] = seen
    [handled] = [each for each in collector.spans("handle h0") if "binlane.attempt" in each.attributes]
    # 3: chosen, and its trace id is random.
    assert of_batch == {"traceparent": f"00-{handled.trace_id}-{handled.span_id}-03"}
    assert f"{current.span_id:016x}" == handled.span_id
    [own] = collector.spans("process cdc.shop")
    assert gone_on == {"traceparent": f"00-{own.trace_id}-{own.span_id}-01", "tracestate": "shop=1"}
    assert passed_on == {"traceparent": traceparent(1), "tracestate": "shop=1"}
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_batch_that_is_not_chosen_tells_others_so(traced: Callable[..., Tracing]) -> None:
    traced(sample_ratio=0.0)
    stage, handler = Stage(), Scripted()
    table = unit("orders", handler)
    flags: list[str] = []
    handler.script = lambda batch: flags.append(batch.trace_headers()["traceparent"][-3:])
    offer(stage, table, [0], parents=False)
    stage.run(table)
    assert flags == ["-02"]  # a random trace id, not sampled


def test_without_tracing_a_batch_has_no_headers_to_pass_on() -> None:
    stage, handler = Stage(), Scripted()
    table = unit("orders", handler)
    offer(stage, table, [0])
    stage.run(table)
    [batch] = handler.batches
    assert not batch.is_traced
    assert batch.trace_headers() == batch.trace_headers(batch.changes[0]) == {}


def test_a_worker_that_is_stopped_by_a_handler_tells_why(
    traced: Callable[..., Tracing], collector: Collector
) -> None:
    tracing = traced()
    stage = Stage()
    table = unit("orders", Scripted(raising(StopWorker("gone"))))
    offer(stage, table, [0], parents=False)
    stage.run(until=lambda: stage.errors)
    told(collector, tracing)
    [batch] = collector.spans("process_batch cdc.shop")
    assert (batch.attributes["binlane.outcome"], batch.error) == ("stopped", "gone")


def test_a_fault_of_tracing_costs_nothing_but_the_trace(
    traced: Callable[..., Tracing], monkeypatch: pytest.MonkeyPatch
) -> None:
    tracing = traced()
    monkeypatch.setattr(tracing, "_begun", lambda work: 1 / 0)
    stage, handler = Stage(), Scripted()
    table = unit("orders", handler)
    stage.offer((table, range(3)))
    stage.run(table)
    assert stage.checkpoint() == Checkpoint(3)
    assert not stage.errors


PLAIN = [
    each
    for module in (test_processor, test_processor_records, test_row_order_processor)
    for name, each in inspect.getmembers(module, inspect.isfunction)
    if name.startswith("test_") and not inspect.signature(each).parameters
]


@pytest.mark.parametrize("test", PLAIN, ids=lambda each: each.__name__)
def test_traced_processors_do_all_that_plain_ones_do(
    test: Callable[[], None], traced: Callable[..., Tracing]
) -> None:
    tracing = traced()
    test()
    tracing.close()
    failed = dropped(tracing, "export_failed") + dropped(tracing, "queue_full")
    assert failed == 0
