"""The metrics that handlers report, and those read from statuses at each scrape."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import Counter, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from worker.observing.metric_definitions import Combine, Meter, TableLabels, definition, family, meter
from worker.observing.overview.figures import drain_seconds, handled_tables
from worker.observing.status import LaneStatus, Look, PartitionStatus, TableStatus, WorkerStatus

_SPARK_RESULTS = ("success", "failure")


def of_status(look: Look, labels: TableLabels) -> Iterator[Metric]:
    """Yield the families of a status."""
    status = look.status
    yield from _of_tables(look, labels)
    yield family(
        "binlane_table_paused_seconds",
        *(
            ([each.table, each.handler or "", each.by], max(0.0, time.time() - each.since.timestamp()))
            for each in status.pauses
        ),
    )
    yield from _of_lanes(status.lanes)
    yield from _of_bounds(status)
    yield from _of_partitions(status.partitions, held_up=look.held_up)
    yield family("binlane_drain_seconds", ([], drain_seconds(status)))
    targets = [([each.handler], each) for each in status.targets]
    yield family("binlane_target_up", *((label, each.up) for label, each in targets))
    yield family("binlane_limit_waiting", *((label, each.waiting) for label, each in targets))
    yield family(
        "binlane_limit_wait_seconds_total", *((label, each.waited_seconds) for label, each in targets)
    )
    if status.kafka is not None:
        if status.kafka.up is not None:
            yield family("binlane_kafka_up", ([], status.kafka.up))
        yield family("binlane_membership_unconfirmed_seconds", ([], status.kafka.unconfirmed_seconds))


def _of_tables(look: Look, labels: TableLabels) -> Iterator[Metric]:
    finished: dict[str, int] = {}
    for table, records in look.finished:
        label = labels.label(table)
        finished[label] = finished.get(label, 0) + records
    counter = family(
        "binlane_records_finished_total", *(([label], records) for label, records in finished.items())
    )
    counter.samples = labels.fold(counter.samples)
    yield counter
    # A table without records, known only from a statement, has no label.
    known = {table for table, _ in look.finished}
    yield from _of_table_states([table for table in look.status.tables if table.table in known], labels)
    yield family("binlane_tables_blocked", ([], look.standing))
    yield family("binlane_tables_halted", ([], look.halted))
    yield family("binlane_tables_target_down", ([], look.target_down))
    yield family("binlane_blocked_records", ([], look.blocked_records))
    for what, value in zip(("records", "bytes", "seconds"), look.parked, strict=True):
        yield family(f"binlane_parked_{what}", ([], value))


def _of_table_states(tables: Sequence[TableStatus], labels: TableLabels) -> Iterator[Metric]:
    states = family("binlane_table_state")
    found: dict[tuple[str, str], int] = {}
    late: dict[str, float] = {}
    for table in tables:
        label = labels.label(table.table)
        found[table.state, label] = found.get((table.state, label), 0) + 1
        late[label] = max(late.get(label, 0.0), table.delay_seconds or 0.0)
    for state in dict.fromkeys(state for state, _ in found):
        own = [
            Sample(states.name, {"table": label, "state": state}, count)
            for (each, label), count in found.items()
            if each == state
        ]
        states.samples += labels.fold(own)
    yield states
    delay = family("binlane_table_delay_seconds")
    delay.samples = labels.fold(
        [Sample(delay.name, {"table": label}, seconds) for label, seconds in late.items()], max
    )
    yield delay


def _of_lanes(lanes: Sequence[LaneStatus]) -> Iterator[Metric]:
    labelled = [([str(lane.lane)], lane) for lane in lanes]
    yield family("binlane_lane_queued_records", *((label, lane.queued_records) for label, lane in labelled))
    yield family("binlane_lane_queued_bytes", *((label, lane.queued_bytes) for label, lane in labelled))
    yield family(
        "binlane_lane_running_seconds", *((label, lane.running_seconds or 0.0) for label, lane in labelled)
    )
    yield family("binlane_lane_busy_seconds_total", *((label, lane.busy_seconds) for label, lane in labelled))
    offers = [([*label, result], count) for label, lane in labelled for result, count in lane.offers.items()]
    yield family("binlane_lane_offers_total", *offers)
    batches = [
        ([*label, result], count) for label, lane in labelled for result, count in lane.batches.items()
    ]
    yield family("binlane_lane_batches_total", *batches)


def _of_bounds(status: WorkerStatus) -> Iterator[Metric]:
    records, size = status.lane_max_records, status.max_bytes
    if not records or not size:
        return
    fullest = max((lane.queued_records for lane in status.lanes), default=0) / records
    held = sum(lane.queued_bytes for lane in status.lanes) / size
    yield family("binlane_lanes_fill_ratio", ([], max(fullest, held)))


_OF_PARTITION: Mapping[str, Callable[[PartitionStatus], float | None]] = {
    "binlane_partition_paused": lambda each: each.paused,
    "binlane_standstill_seconds": lambda each: each.standstill_seconds,
    "binlane_partition_error_seconds": lambda each: 0.0 if each.error is None else each.error.seconds,
    "binlane_first_commit_missing_seconds": lambda each: each.first_commit_seconds,
    "binlane_ahead_records": lambda each: each.ahead,
    "binlane_max_ahead_reached": lambda each: each.paused_by == "max_ahead",
    "binlane_parked_full": lambda each: each.paused_by == "parked",
    "binlane_head_stuck_seconds": lambda each: 0.0 if each.stuck is None else each.stuck.seconds,
    "binlane_head_paused_seconds": lambda each: each.head_paused_seconds,
    "binlane_position": lambda each: each.position,
    "binlane_committed": lambda each: each.committed,
    "binlane_unfinished_records": lambda each: each.unfinished,
    "binlane_drain_repeated_records": lambda each: each.repeated,
    "binlane_unread_records": lambda each: each.unread,
    "binlane_lag_records": lambda each: each.lag,
    "binlane_delay_seconds": lambda each: (
        each.delay_seconds if each.unfinished else each.delay_seconds or 0.0
    ),
    "binlane_last_source_timestamp_seconds": lambda each: (
        None if each.source_time_ms is None else each.source_time_ms / 1000
    ),
}


def _of_partitions(partitions: Sequence[PartitionStatus], *, held_up: bool) -> Iterator[Metric]:
    labelled = [([each.topic, str(each.partition)], each) for each in partitions]
    blocked = [(label, held_up or each.paused_by not in (None, "lanes")) for label, each in labelled]
    yield family("binlane_partition_blocked", *blocked)
    for name, value_of in _OF_PARTITION.items():
        yield family(name, *((label, value_of(each)) for label, each in labelled))


class HandlerMeters:
    """The worker's implementation of `HandlerContext.metrics`. A metric appears with its first value: a
    worker without Spark has no Spark metrics. Thread-safe."""

    def __init__(self, tables: TableLabels) -> None:
        self._tables = tables
        self._meters: dict[str, Meter] = {}
        self._lock = threading.Lock()  # guards _meters

    def count(self, metric: str, amount: float = 1, **labels: str) -> None:
        """See HandlerMetrics. Raises KeyError, and ValueError for labels that the metric does not have."""
        counter = self._meter(metric, "counter")
        assert isinstance(counter, Counter)
        (counter.labels(**self._labels(labels)) if labels else counter).inc(amount)

    def observe(self, metric: str, value: float, **labels: str) -> None:
        """See HandlerMetrics. Raises KeyError, and ValueError for labels that the metric does not have."""
        histogram = self._meter(metric, "histogram")
        assert isinstance(histogram, Histogram)
        (histogram.labels(**self._labels(labels)) if labels else histogram).observe(value)

    def collect(self, statuses: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
        """Yield the current metric families. `statuses` has the form of `WorkerStatus.handlers`."""
        of_spark = [status for status in statuses if "spark" in status]
        if of_spark:
            for result in _SPARK_RESULTS:  # a counter that starts at 1 shows no increase
                self.count("binlane_spark_merges_total", 0, result=result)
            yield self._gauge(of_spark, "binlane_spark_waiting_rows", "waiting_rows", sum)
            yield self._gauge(of_spark, "binlane_spark_waiting_seconds", "waiting_seconds", max)
            yield _spark_up(of_spark)
        with self._lock:
            meters = list(self._meters.values())
        yield from self._tables.families(meters)

    def _gauge(
        self, statuses: Iterable[Mapping[str, Any]], metric: str, key: str, combine: Combine
    ) -> Metric:
        """Build a gauge from one value per table. `combine` joins handlers that share a table."""
        found: dict[str, list[float]] = {}
        for _, table in handled_tables(statuses):
            label = self._tables.label(str(table.get("table", "")))
            found.setdefault(label, []).append(float(table.get(key) or 0))
        samples = [Sample(metric, {"table": label}, combine(each)) for label, each in found.items()]
        gauge = family(metric)
        gauge.samples = self._tables.fold(samples, combine)
        return gauge

    def _meter(self, metric: str, kind: str) -> Meter:
        entry = definition(metric)
        if entry.by != "handler" or entry.kind != kind:
            raise KeyError(f"{metric} is not a {kind} that handlers report")
        with self._lock:
            if metric not in self._meters:
                self._meters[metric] = meter(metric)
            return self._meters[metric]

    def _labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        return {
            name: self._tables.label(value) if name == "table" else value for name, value in labels.items()
        }


def _spark_up(statuses: Iterable[Mapping[str, Any]]) -> Metric:
    """Treat handlers with the same name as one. It is up only if all of them are."""
    found: dict[str, bool] = {}
    for status in statuses:
        up = status["spark"].get("up") if isinstance(status["spark"], Mapping) else None
        if up is not None:
            name = str(status.get("handler", ""))
            found[name] = found.get(name, True) and bool(up)
    return family("binlane_spark_up", *(([name], up) for name, up in found.items()))
