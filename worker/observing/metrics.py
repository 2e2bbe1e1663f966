"""The worker's Prometheus metrics.

What happens rarely is counted here as it happens. What happens for every batch is not: lanes, tables and
partitions are read from the worker's status when Prometheus scrapes, handler times from `HandlerTimes`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from worker import __version__
from worker.observing.handler_metrics import HandlerMeters
from worker.observing.histogram import HandlerTimes, merge
from worker.observing.log_limits import STORMY, LogLimits
from worker.observing.logs import LIMITS
from worker.observing.metric_definitions import definition
from worker.observing.status import Look
from worker.observing.status_metrics import of_status
from worker.observing.table_labels import MAX_TABLE_LABELS, TableLabels

CommitResult = Literal["success", "failure"]
ReloadResult = Literal["success", "refused"]
RebalanceKind = Literal["assign", "revoke", "lost"]
DropReason = Literal["queue_full", "export_failed", "too_many"]

_LEVELS = ("debug", "info", "warning", "error", "critical")


class Metrics:
    """All metrics of one worker, in a registry of their own.

    Every method may be called from any thread.
    """

    def __init__(self, version: str = __version__, log_limits: LogLimits = LIMITS) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._version = version
        self._log_limits = log_limits
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
        self._unblocked = _counter("binlane_unblocked_records_total")
        self._backpressure = _counter("binlane_backpressure_seconds_total")
        self._commits = _counter("binlane_commits_total")
        self._rebalances = _counter("binlane_rebalances_total")
        self._kafka_errors = _counter("binlane_kafka_errors_total")
        self._reloads = _counter("binlane_reloads_total")
        self._exported = _counter("binlane_spans_exported_total")
        self._dropped = _counter("binlane_spans_dropped_total")
        self._rebuilt = _counter("binlane_schemas_rebuilt_total")
        self._last_reload = _gauge("binlane_last_reload_successful")
        self._last_reload.set(1)
        self._last_commit = _gauge("binlane_last_commit_timestamp_seconds")
        # Those that alerts watch begin at 0: a counter that begins at 1 shows no increase.
        for reason in ("failed", "undecodable", "unmatched"):
            self._skipped.labels(reason)
        for action in ("skip", "dead_letter"):
            self._unblocked.labels(action)
        for result in ("success", "refused"):
            self._reloads.labels(result)
        for kind in ("assign", "revoke", "lost"):
            self._rebalances.labels(kind)
        for reason in ("queue_full", "export_failed", "too_many"):
            self._dropped.labels(reason)

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

    def unblocked(self, action: str) -> None:
        """A record was set aside because a person ordered it."""
        self._unblocked.labels(action).inc()

    def reload(self, result: ReloadResult) -> None:
        self._reloads.labels(result).inc()
        self._last_reload.set(result == "success")

    def commit(self, store: str, result: CommitResult) -> None:
        # Both results exist from the first commit on, likewise.
        for known in ("success", "failure"):
            self._commits.labels(store, known)
        self._commits.labels(store, result).inc()
        if result == "success":
            self._last_commit.labels(store).set_to_current_time()

    def rebalance(self, kind: RebalanceKind) -> None:
        self._rebalances.labels(kind).inc()

    def kafka_error(self, code: str) -> None:
        self._kafka_errors.labels(code).inc()

    def backpressure(self, seconds: float) -> None:
        self._backpressure.inc(seconds)

    def spans_exported(self, spans: int) -> None:
        self._exported.inc(spans)

    def spans_dropped(self, reason: DropReason, spans: int = 1) -> None:
        self._dropped.labels(reason).inc(spans)

    def schema_rebuilt(self) -> None:
        """A schema of the registry was made ready again that had been let go."""
        self._rebuilt.inc()

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

        levels, left_out = self._log_limits.counts()
        yield _told("binlane_log_events_total", dict.fromkeys(_LEVELS, 0) | levels)
        yield _told("binlane_log_lines_left_out_total", dict.fromkeys(STORMY, 0) | left_out)

        look = None if self._look is None else self._look()
        status = look.status if look is not None else None
        if look is not None and status is not None:
            # A table's first retry or dead letter must show as an increase, so both begin at 0.
            for table, _ in look.finished:
                label = self.tables.label(table)
                self._retries.labels(label)
                self._dead_letters.labels(label)
            yield from of_status(look, self.tables)
        yield from self.handlers.collect(status.handlers if status is not None else ())

        counters: tuple[Counter | Gauge, ...] = (
            self._consumed,
            self._skipped,
            self._handler_failures,
            self._unblocked,
            self._backpressure,
            self._commits,
            self._rebalances,
            self._kafka_errors,
            self._reloads,
            self._exported,
            self._dropped,
            self._rebuilt,
            self._last_reload,
            self._last_commit,
        )
        for counter in counters:
            yield from _families(counter)
        for by_table in (self._retries, self._dead_letters):
            for family in _families(by_table):
                family.samples = self.tables.fold(family.samples)
                yield family


class _Scrape(Collector):
    """What the registry asks at each scrape."""

    def __init__(self, collect: Callable[[], Iterator[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Metric]:
        return self._collect()


def _counter(name: str) -> Counter:
    entry = definition(name)
    return Counter(entry.family, entry.help, entry.labels, registry=None)


def _told(name: str, counts: dict[str, int]) -> CounterMetricFamily:
    """A counter that is kept elsewhere, {its label: count}."""
    entry = definition(name)
    family = CounterMetricFamily(entry.family, entry.help, labels=entry.labels)
    for label, count in counts.items():
        family.add_metric([label], count)
    return family


def _gauge(name: str) -> Gauge:
    entry = definition(name)
    return Gauge(entry.family, entry.help, entry.labels, registry=None)


def _families(counter: Counter | Gauge) -> Iterator[Metric]:
    """The counter without the library's `_created` series: one more series each that nobody asks for."""
    for family in counter.collect():
        family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
        yield family
