"""What Prometheus is told, name by name and label by label."""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from worker.observing.metric_definitions import DEFINITIONS, MAX_TABLE_LABELS, OTHER_TABLES
from worker.observing.metrics import Metrics
from worker.observing.status import (
    CheckpointStatus,
    KafkaStatus,
    LaneStatus,
    Look,
    Pace,
    PartitionStatus,
    Pause,
    TableStatus,
    TargetStatus,
    WorkerStatus,
)

PROMISED = {
    "binlane_records_consumed_total": {"topic", "partition"},
    "binlane_records_finished_total": {"table"},
    "binlane_records_skipped_total": {"reason"},
    "binlane_handler_seconds": {"handler"},
    "binlane_handler_failures_total": {"handler"},
    "binlane_handler_passed_over_total": {"handler"},
    "binlane_retries_total": {"table"},
    "binlane_dead_letters_total": {"table"},
    "binlane_expectations_failed_total": {"table", "rule"},
    "binlane_transactions_cut_total": {"table"},
    "binlane_lane_processes_ended_total": set(),
    "binlane_tables_blocked": set(),
    "binlane_unblocked_records_total": {"action"},
    "binlane_tables_halted": set(),
    "binlane_tables_target_down": set(),
    "binlane_blocked_records": set(),
    "binlane_table_paused_seconds": {"pattern", "handler", "by"},
    "binlane_table_state": {"table", "state"},
    "binlane_table_delay_seconds": {"table"},
    "binlane_lane_running_seconds": {"lane"},
    "binlane_lane_offers_total": {"lane", "result"},
    "binlane_lane_batches_total": {"lane", "result"},
    "binlane_lanes_fill_ratio": set(),
    "binlane_last_source_timestamp_seconds": {"topic", "partition"},
    "binlane_kafka_up": set(),
    "binlane_membership_unconfirmed_seconds": set(),
    "binlane_last_commit_timestamp_seconds": {"store"},
    "binlane_last_reload_successful": set(),
    "binlane_spark_up": {"handler"},
    "binlane_target_up": {"handler"},
    "binlane_limit_waiting": {"handler"},
    "binlane_limit_wait_seconds_total": {"handler"},
    "binlane_lane_queued_records": {"lane"},
    "binlane_lane_queued_bytes": {"lane"},
    "binlane_lane_busy_seconds_total": {"lane"},
    "binlane_backpressure_seconds_total": set(),
    "binlane_partition_paused": {"topic", "partition"},
    "binlane_partition_blocked": {"topic", "partition"},
    "binlane_standstill_seconds": {"topic", "partition"},
    "binlane_partition_error_seconds": {"topic", "partition"},
    "binlane_first_commit_missing_seconds": {"topic", "partition"},
    "binlane_head_stuck_seconds": {"topic", "partition"},
    "binlane_head_paused_seconds": {"topic", "partition"},
    "binlane_ahead_records": {"topic", "partition"},
    "binlane_max_ahead_reached": {"topic", "partition"},
    "binlane_parked_full": {"topic", "partition"},
    "binlane_parked_records": set(),
    "binlane_parked_bytes": set(),
    "binlane_parked_seconds": set(),
    "binlane_position": {"topic", "partition"},
    "binlane_committed": {"topic", "partition"},
    "binlane_unfinished_records": {"topic", "partition"},
    "binlane_unread_records": {"topic", "partition"},
    "binlane_lag_records": {"topic", "partition"},
    "binlane_delay_seconds": {"topic", "partition"},
    "binlane_commits_total": {"store", "result"},
    "binlane_rebalances_total": {"kind"},
    "binlane_kafka_errors_total": {"code"},
    "binlane_reloads_total": {"result"},
    "binlane_spark_waiting_rows": {"table"},
    "binlane_spark_waiting_seconds": {"table"},
    "binlane_spark_merge_seconds": set(),
    "binlane_spark_merges_total": {"result"},
    "binlane_log_events_total": {"level"},
    "binlane_log_lines_left_out_total": {"event"},
    "binlane_spans_exported_total": set(),
    "binlane_schemas_rebuilt_total": set(),
    "binlane_spans_dropped_total": {"reason"},
    "binlane_drain_seconds": set(),
    "binlane_drain_repeated_records": {"topic", "partition"},
    "binlane_info": {"version", "group"},
}
"""The public promise, written out: dashboards and alerts rest on it."""


def table(name: str, finished: int = 0, **more: object) -> TableStatus:
    fields: dict[str, object] = {"lane": 0, "failed_batches": 0, "state": "idle", "error": None}
    fields |= {"delay_seconds": None, "table": name, "finished_records": finished, **more}
    return TableStatus(**fields)  # type: ignore[arg-type]  # one dict for fields of many types


def partition(number: int = 0, **more: object) -> PartitionStatus:
    fields: dict[str, object] = {"topic": "cdc", "partition": number, "position": 60, "committed": 40}
    fields |= {"unfinished": 5, "finished_ahead": 15, "lag": 30, "paused": False, "delay_seconds": 2.5}
    fields |= {"unread": 10}
    fields |= {"source_time_ms": 1_700_000_000_250}
    return PartitionStatus(**(fields | more))  # type: ignore[arg-type]  # one dict for fields of many types


def worker_status(
    tables: list[TableStatus],
    partitions: list[PartitionStatus] | None = None,
    handlers: list[dict[str, Any]] | None = None,
) -> WorkerStatus:
    lane = LaneStatus(
        lane=3,
        queued_records=7,
        queued_bytes=700,
        running_table="shop.stock",
        running_seconds=61.5,
        busy_seconds=1.5,
        offers={"queued": 5, "refused": 2},
        batches={"finished": 4, "given_back": 1},
        drain_seconds=8.5,
    )
    return WorkerStatus(
        name="shop",
        state="running",
        version="1.2.3",
        uptime_seconds=1,
        partitions=[partition()] if partitions is None else partitions,
        lanes=[lane],
        tables=tables,
        targets=[
            TargetStatus(handler="spark", up=True),
            TargetStatus(handler="sql", up=False, error="no", waiting=3, waited_seconds=1.5),
        ],
        checkpoint=CheckpointStatus(last_success=None, last_error=None),
        kafka=KafkaStatus(up=True, unconfirmed_seconds=2.5),
        handlers=handlers or [],
        pauses=[Pause(table="shop.*", by="ann@laptop", since=datetime.now(UTC) - timedelta(hours=25))],
        lane_max_records=70,
        max_bytes=2000,
        pace=Pace(rate=2.0, lag_growth=None),
    )


def attach(metrics: Metrics, status: Callable[[], WorkerStatus]) -> None:
    """To a worker that shows all its tables."""

    def look() -> Look:
        now = status()
        finished = [(each.table, each.finished_records) for each in now.tables]
        return Look(now, finished, sum(each.state == "blocked" for each in now.tables))

    metrics.attach(look)


def spark(*waiting: tuple[str, int, float | None]) -> dict[str, Any]:
    """What a Spark handler tells: (table, waiting rows, waiting seconds)."""
    tables = [
        {"table": name, "waiting_rows": rows, "waiting_seconds": seconds} for name, rows, seconds in waiting
    ]
    return {
        "handler": "spark",
        "type": "spark",
        "spark": {"master": "local[2]", "up": True},
        "tables": tables,
    }


def samples(metrics: Metrics) -> Iterator[Sample]:
    for family in text_string_to_metric_families(generate_latest(metrics.registry).decode()):
        yield from family.samples


def values(metrics: Metrics, name: str, label: str) -> dict[str, float]:
    return {each.labels[label]: each.value for each in samples(metrics) if each.name == name}


def named(metrics: Metrics, name: str) -> list[Sample]:
    return [each for each in samples(metrics) if each.name == name]


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


@pytest.fixture
def metrics() -> Metrics:
    """Every event has happened once."""
    metrics = Metrics("1.2.3", group="shop")
    tables = [table("shop.orders", 12), table("shop.stock", 3, state="blocked")]
    attach(metrics, lambda: worker_status(tables, handlers=[spark(("shop.orders", 70, 2.5))]))
    metrics.handlers.observe("binlane_spark_merge_seconds", 1.5)
    metrics.handlers.count("binlane_handler_passed_over_total", 2, handler="sql")
    metrics.consumed("cdc", 0, 20)
    metrics.count("binlane_records_skipped_total", "tombstone", amount=4)
    metrics.count("binlane_handler_failures_total", "spark")
    metrics.count("binlane_retries_total", "shop.orders")
    metrics.count("binlane_dead_letters_total", "shop.orders")
    metrics.count("binlane_transactions_cut_total", "shop.orders")
    metrics.count("binlane_expectations_failed_total", "shop.orders", "has_note")
    metrics.commit("kafka", "success")
    metrics.count("binlane_rebalances_total", "assign")
    metrics.count("binlane_kafka_errors_total", "_TRANSPORT")
    metrics.count("binlane_backpressure_seconds_total", amount=0.25)
    metrics.count("binlane_spans_exported_total", amount=3)
    metrics.count("binlane_spans_dropped_total", "queue_full", amount=2)
    metrics.called("spark", 0.02)
    return metrics


def test_a_pause_counts_its_seconds_and_its_first_record_is_not_stuck(metrics: Metrics) -> None:
    labels = {"pattern": "shop.*", "handler": "", "by": "ann@laptop"}
    assert 25 * 3_600 <= (value(metrics, "binlane_table_paused_seconds", **labels) or 0) < 26 * 3_600
    other = Metrics("1.2.3", group="shop")
    attach(other, lambda: worker_status([], [partition(head_paused_seconds=90)]))
    assert value(other, "binlane_head_paused_seconds", topic="cdc", partition="0") == 90
    assert value(other, "binlane_head_stuck_seconds", topic="cdc", partition="0") == 0


def test_every_promised_metric_is_there_with_exactly_its_labels(metrics: Metrics) -> None:
    found: dict[str, set[str]] = {}
    for each in samples(metrics):
        if each.name.startswith("binlane_"):
            name = each.name
            for suffix in ("_bucket", "_count", "_sum"):
                if name.endswith(f"_seconds{suffix}"):
                    name = name.removesuffix(suffix)
            found.setdefault(name, set()).update(set(each.labels) - {"le"})
    assert found == PROMISED


def test_every_metric_has_its_promised_kind_and_a_help(metrics: Metrics) -> None:
    kinds = {entry.name: entry.kind for entry in DEFINITIONS}
    assert set(kinds) == set(PROMISED)
    for family in text_string_to_metric_families(generate_latest(metrics.registry).decode()):
        if family.name.startswith("binlane_"):
            name = family.name if family.type != "counter" else f"{family.name}_total"
            assert family.type == {"info": "gauge"}.get(kinds[name], kinds[name])
            assert len(family.documentation) > 10


def test_a_target_that_is_down_is_told_from_those_that_are_up(metrics: Metrics) -> None:
    assert values(metrics, "binlane_target_up", "handler") == {"spark": 1.0, "sql": 0.0}
    assert values(metrics, "binlane_limit_waiting", "handler") == {"spark": 0.0, "sql": 3.0}
    assert values(metrics, "binlane_limit_wait_seconds_total", "handler") == {"spark": 0.0, "sql": 1.5}


def test_the_process_and_its_garbage_collector_are_measured_too(metrics: Metrics) -> None:
    names = {each.name for each in samples(metrics)}
    assert {"process_resident_memory_bytes", "process_cpu_seconds_total", "python_info"} <= names
    assert "python_gc_collections_total" in names


def test_counted_events_show_their_amounts(metrics: Metrics) -> None:
    metrics.consumed("cdc", 0, 5)
    metrics.count("binlane_dead_letters_total", "shop.orders", amount=2)
    metrics.commit("kafka", "failure")
    assert value(metrics, "binlane_records_consumed_total", topic="cdc", partition="0") == 25
    assert value(metrics, "binlane_records_skipped_total", reason="tombstone") == 4
    assert value(metrics, "binlane_dead_letters_total", table="shop.orders") == 3
    assert value(metrics, "binlane_commits_total", store="kafka", result="success") == 1
    assert value(metrics, "binlane_commits_total", store="kafka", result="failure") == 1
    assert value(metrics, "binlane_backpressure_seconds_total") == 0.25
    assert value(metrics, "binlane_info", version="1.2.3", group="shop") == 1


def test_what_a_drain_would_cost_now_is_told(metrics: Metrics) -> None:
    attach(metrics, lambda: worker_status([], [partition(repeated=4_000)]))
    assert value(metrics, "binlane_drain_seconds") == 8.5
    assert value(metrics, "binlane_drain_repeated_records", topic="cdc", partition="0") == 4_000


def test_lanes_tables_and_partitions_are_read_from_the_status_at_each_scrape(metrics: Metrics) -> None:
    assert value(metrics, "binlane_records_finished_total", table="shop.orders") == 12
    assert value(metrics, "binlane_tables_blocked") == 1
    assert value(metrics, "binlane_lane_queued_bytes", lane="3") == 700
    assert value(metrics, "binlane_lane_busy_seconds_total", lane="3") == 1.5
    assert value(metrics, "binlane_lane_offers_total", lane="3", result="refused") == 2
    assert value(metrics, "binlane_lane_batches_total", lane="3", result="given_back") == 1
    for name, expected in (("position", 60), ("committed", 40), ("lag_records", 30), ("delay_seconds", 2.5)):
        assert value(metrics, f"binlane_{name}", topic="cdc", partition="0") == expected
    attach(metrics, lambda: worker_status([table("shop.orders", 13)], [partition(paused=True)]))
    assert value(metrics, "binlane_records_finished_total", table="shop.orders") == 13
    assert value(metrics, "binlane_tables_blocked") == 0
    assert value(metrics, "binlane_partition_paused", topic="cdc", partition="0") == 1


@pytest.mark.parametrize(
    ("paused_by", "held_up", "expected"),
    [
        (None, False, 0),
        ("lanes", False, 0),  # the handlers are the limit: another worker has handlers of its own
        ("lanes", True, 1),
        (None, True, 1),  # a moment before it is paused
        ("max_ahead", False, 1),
        ("format", False, 1),
        ("schema_registry", False, 1),
        ("ddl_topics", False, 1),
    ],
)
def test_a_partition_that_another_worker_would_not_read_on_either_is_told(
    paused_by: str | None, held_up: bool, expected: float
) -> None:
    metrics = Metrics()
    status = worker_status([], [partition(paused=paused_by is not None, paused_by=paused_by)])
    metrics.attach(lambda: Look(status, [], standing=0, held_up=held_up))
    assert value(metrics, "binlane_partition_blocked", topic="cdc", partition="0") == expected


def test_what_a_worker_is_stuck_at_is_told(metrics: Metrics) -> None:
    assert value(metrics, "binlane_lane_running_seconds", lane="3") == 61.5
    assert value(metrics, "binlane_lanes_fill_ratio") == 0.35, "7 of 70 records, 700 of 2000 bytes"
    assert value(metrics, "binlane_kafka_up") == 1
    assert value(metrics, "binlane_membership_unconfirmed_seconds") == 2.5
    labels = {"topic": "cdc", "partition": "0"}
    assert value(metrics, "binlane_last_source_timestamp_seconds", **labels) == 1_700_000_000.25
    assert value(metrics, "binlane_spark_up", handler="spark") == 1


def test_a_tables_state_and_delay_are_told_and_why_tables_stand_still() -> None:
    metrics = Metrics()
    tables = [table("shop.a", 1, state="blocked", delay_seconds=40.0), table("shop.b", 1, state="blocked")]
    tables += [table("shop.c", 1), table("shop.told_of_by_a_statement")]
    finished = [(each.table, each.finished_records) for each in tables[:3]]
    metrics.attach(
        lambda: Look(
            worker_status(tables),
            finished,
            standing=2,
            halted=1,
            target_down=1,
            blocked_records=9,
            parked=(7, 6_000, 2.5),
        )
    )
    assert value(metrics, "binlane_tables_blocked") == 2
    assert value(metrics, "binlane_tables_halted") == 1
    assert value(metrics, "binlane_tables_target_down") == 1
    assert value(metrics, "binlane_blocked_records") == 9
    assert value(metrics, "binlane_parked_records") == 7
    assert value(metrics, "binlane_parked_bytes") == 6_000
    assert value(metrics, "binlane_parked_seconds") == 2.5
    states = {(each.labels["table"], each.labels["state"]) for each in named(metrics, "binlane_table_state")}
    assert states == {("shop.a", "blocked"), ("shop.b", "blocked"), ("shop.c", "idle")}
    delays = values(metrics, "binlane_table_delay_seconds", "table")
    assert delays == {"shop.a": 40, "shop.b": 0, "shop.c": 0}


def test_states_and_delays_of_many_tables_stay_within_the_limit() -> None:
    metrics = Metrics()
    tables = [
        table(f"shop.t{number}", 1, state="blocked" if number % 2 else "idle", delay_seconds=float(number))
        for number in range(1_500)
    ]
    attach(metrics, lambda: worker_status(tables))
    states = named(metrics, "binlane_table_state")
    assert len({each.labels["table"] for each in states}) <= MAX_TABLE_LABELS
    assert sum(each.value for each in states if each.labels["state"] == "blocked") == 750
    assert values(metrics, "binlane_table_delay_seconds", "table")[OTHER_TABLES] == 1_499


def test_the_last_reload_and_the_last_commit_are_told() -> None:
    metrics = Metrics()
    assert value(metrics, "binlane_last_reload_successful") == 1
    metrics.reload("refused")
    assert value(metrics, "binlane_last_reload_successful") == 0
    metrics.reload("success")
    assert value(metrics, "binlane_last_reload_successful") == 1
    metrics.commit("kafka", "failure")
    assert value(metrics, "binlane_last_commit_timestamp_seconds", store="kafka") is None
    before = time.time()
    metrics.commit("kafka", "success")
    assert (value(metrics, "binlane_last_commit_timestamp_seconds", store="kafka") or 0) >= before


def test_what_is_not_known_yet_has_no_sample_instead_of_a_zero() -> None:
    metrics = Metrics()
    unknown = partition(position=None, committed=None, lag=None, delay_seconds=None, source_time_ms=None)
    attach(metrics, lambda: worker_status([], [unknown]))
    for name in ("position", "committed", "lag_records", "delay_seconds", "last_source_timestamp_seconds"):
        assert value(metrics, f"binlane_{name}", topic="cdc", partition="0") is None
    assert value(metrics, "binlane_unfinished_records", topic="cdc", partition="0") == 5


def test_a_partition_with_nothing_unfinished_has_no_delay() -> None:
    metrics = Metrics()
    attach(metrics, lambda: worker_status([], [partition(unfinished=0, delay_seconds=None)]))
    assert value(metrics, "binlane_delay_seconds", topic="cdc", partition="0") == 0


def test_a_scrape_before_the_worker_is_attached_shows_the_counters() -> None:
    metrics = Metrics()
    metrics.count("binlane_rebalances_total", "lost")
    assert value(metrics, "binlane_rebalances_total", kind="lost") == 1
    assert value(metrics, "binlane_backpressure_seconds_total") == 0


def test_counters_that_alerts_watch_begin_at_zero_and_not_with_their_first_event() -> None:
    metrics = Metrics()
    attach(metrics, lambda: worker_status([table("shop.orders")]))
    metrics.called("spark", 0.1)
    metrics.commit("file", "success")
    assert value(metrics, "binlane_dead_letters_total", table="shop.orders") == 0
    assert value(metrics, "binlane_retries_total", table="shop.orders") == 0
    assert value(metrics, "binlane_handler_failures_total", handler="spark") == 0
    assert value(metrics, "binlane_commits_total", store="file", result="failure") == 0
    assert value(metrics, "binlane_rebalances_total", kind="lost") == 0
    assert value(metrics, "binlane_records_skipped_total", reason="failed") == 0
    assert value(metrics, "binlane_records_skipped_total", reason="undecodable") == 0


def test_a_thousand_tables_keep_their_names() -> None:
    metrics = Metrics()
    names = [f"shop.t{number}" for number in range(MAX_TABLE_LABELS)]
    attach(metrics, lambda: worker_status([table(name, 2) for name in names]))
    assert values(metrics, "binlane_records_finished_total", "table") == dict.fromkeys(names, 2)


def test_more_tables_stay_within_the_limit_over_all_metrics_and_lose_no_count() -> None:
    metrics = Metrics()
    metrics.count("binlane_retries_total", "shop.early")
    names = [f"shop.t{number}" for number in range(1_500)]
    attach(metrics, lambda: worker_status([table(name, 2) for name in names]))
    for name in (*names, *names, "shop.late"):
        metrics.count("binlane_dead_letters_total", name)
        metrics.count("binlane_retries_total", name)
    labels = {each.labels["table"] for each in samples(metrics) if "table" in each.labels}
    assert len(labels) <= MAX_TABLE_LABELS
    assert {"shop.early", "shop.t0", OTHER_TABLES} <= labels
    assert sum(values(metrics, "binlane_records_finished_total", "table").values()) == 3_000
    assert sum(values(metrics, "binlane_dead_letters_total", "table").values()) == 3_001
    assert sum(values(metrics, "binlane_retries_total", "table").values()) == 3_002
    assert values(metrics, "binlane_records_finished_total", "table")[OTHER_TABLES] > 1_000


def test_a_table_that_several_lanes_serve_is_one_series() -> None:
    metrics = Metrics()
    attach(metrics, lambda: worker_status([table("shop.orders", 4), table("shop.orders", 5, lane=1)]))
    assert values(metrics, "binlane_records_finished_total", "table") == {"shop.orders": 9}


def test_what_waits_for_spark_is_read_from_the_handlers_status_at_each_scrape() -> None:
    metrics = Metrics()
    replica, history = (
        spark(("shop.orders", 70, 2.5), ("shop.stock", 0, None)),
        spark(("shop.orders", 5, 9.0)),
    )
    attach(metrics, lambda: worker_status([], handlers=[replica, history, {"handler": "own", "type": "a:B"}]))
    assert values(metrics, "binlane_spark_waiting_rows", "table") == {"shop.orders": 75, "shop.stock": 0}
    assert values(metrics, "binlane_spark_waiting_seconds", "table") == {"shop.orders": 9, "shop.stock": 0}
    assert values(metrics, "binlane_spark_merges_total", "result") == {"success": 0, "failure": 0}


def test_tables_beyond_the_limit_show_the_longest_wait_and_the_sum_of_rows() -> None:
    metrics = Metrics()
    waiting = [(f"shop.t{number}", 2, float(number)) for number in range(1_500)]
    attach(metrics, lambda: worker_status([], handlers=[spark(*waiting)]))
    rows = values(metrics, "binlane_spark_waiting_rows", "table")
    assert len(rows) <= MAX_TABLE_LABELS
    assert sum(rows.values()) == 3_000
    assert values(metrics, "binlane_spark_waiting_seconds", "table")[OTHER_TABLES] == 1_499


def test_a_handler_counts_and_measures_what_it_does_behind_its_batches() -> None:
    metrics = Metrics()
    metrics.handlers.count("binlane_spark_merges_total", result="failure")
    metrics.handlers.observe("binlane_spark_merge_seconds", 1.5)
    metrics.handlers.observe("binlane_spark_merge_seconds", 0.25)
    assert value(metrics, "binlane_spark_merges_total", result="failure") == 1
    assert value(metrics, "binlane_spark_merge_seconds_sum") == 1.75
    assert value(metrics, "binlane_spark_merge_seconds_bucket", le="0.25") == 1


@pytest.mark.parametrize(
    "name", ["binlane_spark_rows", "binlane_retries_total", "binlane_spark_merge_seconds"]
)
def test_a_handler_cannot_count_what_is_not_its_own_or_no_counter(name: str) -> None:
    with pytest.raises(KeyError, match=name):
        Metrics().handlers.count(name)


def test_a_worker_without_spark_shows_no_metrics_of_spark() -> None:
    metrics = Metrics()
    attach(metrics, lambda: worker_status([table("shop.orders")]))
    assert not [each for each in samples(metrics) if each.name.startswith("binlane_spark")]


PAGE = Path(__file__).parents[1].joinpath("docs", "metrics.md")


def test_the_documentation_has_the_table_of_the_definitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PAGE.parents[1] / "tools")
    table = importlib.import_module("generate").markdown_table()
    assert f"\n{table}\n" in PAGE.read_text("utf-8"), "run python tools/generate.py"


def test_every_metric_is_defined_once_and_promised() -> None:
    names = [entry.name for entry in DEFINITIONS]
    assert len(names) == len(set(names))
    assert set(names) == PROMISED.keys()


def test_alerts_and_queries_use_metrics_and_labels_that_exist(metrics: Metrics) -> None:
    text = PAGE.read_text("utf-8").split("## Queries")[1]
    alerts = yaml.safe_load(PAGE.parents[1].joinpath("deploy", "alerts.yml").read_text())
    text += "\n".join(rule["expr"] for group in alerts["groups"] for rule in group["rules"])
    labels: dict[str, set[str]] = {}
    for each in samples(metrics):
        labels.setdefault(each.name, set()).update(each.labels)
    used = re.findall(r"(?:by \(([\w, ]+)\) \((?:\w+\()*)?(binlane_\w+)(?:\{(\w+)=)?", text)
    assert len(used) >= 25
    of_the_scrape = {"namespace", "job", "instance"}
    for grouped, name, matched in used:
        named = set(filter(None, [*grouped.split(", "), matched])) - of_the_scrape
        assert named <= labels[name], name
