"""The worker's Prometheus metrics.

What happens rarely is counted here as it happens. What happens for every batch is not: lanes, tables and
partitions are read from the worker's status when Prometheus scrapes, handler times from `HandlerTimes`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from worker import __version__
from worker.handler_metrics import HandlerMeters
from worker.histogram import HandlerTimes, merge
from worker.metric_definitions import definition
from worker.status import LaneStatus, Look, PartitionStatus
from worker.table_labels import MAX_TABLE_LABELS, OTHER_TABLES, TableLabels

__all__ = ["MAX_TABLE_LABELS", "OTHER_TABLES", "CommitResult", "Metrics", "RebalanceKind", "ReloadResult"]

CommitResult = Literal["success", "failure"]
ReloadResult = Literal["success", "refused"]
RebalanceKind = Literal["assign", "revoke", "lost"]


class Metrics:
    """All metrics of one worker, in a registry of their own.

    Every method may be called from any thread.
    """

    def __init__(self, version: str = __version__) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._version = version
        self._look: Callable[[], Look] | None = None
        self.tables = TableLabels(MAX_TABLE_LABELS)
        self.handlers = HandlerMeters(self.tables)
        """What handlers report."""
        self._times: dict[int, HandlerTimes] = {}
        self._times_lock = threading.Lock()  # guards _times: lanes are added while a scrape reads

        self._consumed = _counter("binlane_records_consumed_total")
        self._skipped = _counter("binlane_records_skipped_total")
        self._handler_failures = _counter("binlane_handler_failures_total")
        self._retries = _counter("binlane_retries_total")
        self._dead_letters = _counter("binlane_dead_letters_total")
        self._backpressure = _counter("binlane_backpressure_seconds_total")
        self._commits = _counter("binlane_commits_total")
        self._rebalances = _counter("binlane_rebalances_total")
        self._reloads = _counter("binlane_reloads_total")
        for result in ("success", "refused"):
            self._reloads.labels(result)
        for kind in ("assign", "revoke", "lost"):
            self._rebalances.labels(kind)

        self.registry.register(_Scrape(self._collect))
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def attach(self, look: Callable[[], Look]) -> None:
        """Say where lanes, tables and partitions are read from at each scrape."""
        self._look = look

    def consumed(self, topic: str, partition: int, records: int) -> None:
        self._consumed.labels(topic, partition).inc(records)

    def skipped(self, reason: str, records: int = 1) -> None:
        self._skipped.labels(reason).inc(records)

    def handler_failure(self, handler: str) -> None:
        self._handler_failures.labels(handler).inc()

    def retry(self, table: str) -> None:
        self._retries.labels(self.tables.label(table)).inc()

    def dead_letter(self, table: str, records: int = 1) -> None:
        self._dead_letters.labels(self.tables.label(table)).inc(records)

    def reload(self, result: ReloadResult) -> None:
        self._reloads.labels(result).inc()

    def commit(self, store: str, result: CommitResult) -> None:
        # Both results exist from the first commit on: a counter that begins at 1 shows no increase.
        for known in ("success", "failure"):
            self._commits.labels(store, known)
        self._commits.labels(store, result).inc()

    def rebalance(self, kind: RebalanceKind) -> None:
        self._rebalances.labels(kind).inc()

    def backpressure(self, seconds: float) -> None:
        self._backpressure.inc(seconds)

    def handler_times(self, lane: int) -> HandlerTimes:
        """The times of one lane, always the same object; to be written by that lane's thread alone."""
        with self._times_lock:
            return self._times.setdefault(lane, HandlerTimes())

    def _collect(self) -> Iterator[Metric]:
        info = definition("binlane_info")
        yield InfoMetricFamily(info.family, info.help, {"version": self._version})

        with self._times_lock:
            parts = list(self._times.values())
        entry = definition("binlane_handler_seconds")
        times = HistogramMetricFamily(entry.family, entry.help, labels=entry.labels)
        for handler, histogram in merge(parts).items():
            times.add_metric([handler], histogram.cumulative(), histogram.total)
            self._handler_failures.labels(handler)
        yield times

        look = None if self._look is None else self._look()
        status = look.status if look is not None else None
        if look is not None and status is not None:
            yield from self._collect_tables(look)
            yield from _collect_lanes(status.lanes)
            yield from _collect_partitions(status.partitions)
            up = _gauge_family("binlane_target_up")
            for target in status.targets:
                up.add_metric([target.handler], target.up)
            yield up
        yield from self.handlers.collect(status.handlers if status is not None else ())

        for counter in (
            self._consumed,
            self._skipped,
            self._handler_failures,
            self._backpressure,
            self._commits,
            self._rebalances,
            self._reloads,
        ):
            yield from _families(counter)
        for counter in (self._retries, self._dead_letters):
            for family in _families(counter):
                family.samples = self.tables.fold(family.samples)
                yield family

    def _collect_tables(self, look: Look) -> Iterator[Metric]:
        finished: dict[str, int] = {}
        for table, records in look.finished:
            label = self.tables.label(table)
            finished[label] = finished.get(label, 0) + records
        # A table's first retry or dead letter must show as an increase, so both begin at 0.
        for label in finished:
            self._retries.labels(label)
            self._dead_letters.labels(label)
        family = _counter_family("binlane_records_finished_total")
        for label, records in finished.items():
            family.add_metric([label], records)
        family.samples = self.tables.fold(family.samples)
        yield family
        gauge = _gauge_family("binlane_tables_blocked")
        gauge.add_metric([], look.blocked)
        yield gauge


def _collect_lanes(lanes: Sequence[LaneStatus]) -> Iterator[Metric]:
    records = _gauge_family("binlane_lane_queued_records")
    size = _gauge_family("binlane_lane_queued_bytes")
    busy = _counter_family("binlane_lane_busy_seconds_total")
    for lane in lanes:
        label = [str(lane.lane)]
        records.add_metric(label, lane.queued_records)
        size.add_metric(label, lane.queued_bytes)
        busy.add_metric(label, lane.busy_seconds)
    yield from (records, size, busy)


def _collect_partitions(partitions: Sequence[PartitionStatus]) -> Iterator[Metric]:
    """What is not known yet (None) has no sample: 0 would be a claim."""
    paused = _gauge_family("binlane_partition_paused")
    standstill = _gauge_family("binlane_standstill_seconds")
    position = _gauge_family("binlane_position")
    committed = _gauge_family("binlane_committed")
    unfinished = _gauge_family("binlane_unfinished_records")
    lag = _gauge_family("binlane_lag_records")
    delay = _gauge_family("binlane_delay_seconds")
    for partition in partitions:
        label = [partition.topic, str(partition.partition)]
        paused.add_metric(label, partition.paused)
        standstill.add_metric(label, partition.standstill_seconds)
        unfinished.add_metric(label, partition.unfinished)
        oldest = partition.delay_seconds
        if oldest is None and partition.unfinished == 0:
            oldest = 0.0
        for family, value in (
            (position, partition.position),
            (committed, partition.committed),
            (lag, partition.lag),
            (delay, oldest),
        ):
            if value is not None:
                family.add_metric(label, value)
    yield from (paused, standstill, position, committed, unfinished, lag, delay)


class _Scrape(Collector):
    """What the registry asks at each scrape."""

    def __init__(self, collect: Callable[[], Iterator[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Metric]:
        return self._collect()


def _counter(name: str) -> Counter:
    entry = definition(name)
    return Counter(entry.family, entry.help, entry.labels, registry=None)


def _families(counter: Counter) -> Iterator[Metric]:
    """The counter without the library's `_created` series: one more series each that nobody asks for."""
    for family in counter.collect():
        family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
        yield family


def _counter_family(name: str) -> CounterMetricFamily:
    entry = definition(name)
    return CounterMetricFamily(entry.family, entry.help, labels=entry.labels)


def _gauge_family(name: str) -> GaugeMetricFamily:
    entry = definition(name)
    return GaugeMetricFamily(entry.family, entry.help, labels=entry.labels)
