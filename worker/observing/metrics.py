"""The worker's Prometheus metrics.

Rare events are counted here as they happen. Lanes, tables and partitions are read from the worker's status
when Prometheus scrapes. So a batch updates no metric here, except its handlers' times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.metrics_core import InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from worker import __version__
from worker.observing.log_limits import STORMY, LogLimits
from worker.observing.logs import LIMITS
from worker.observing.metric_definitions import MAX_TABLE_LABELS, TableLabels, definition, family, meter
from worker.observing.status import Look
from worker.observing.status_metrics import HandlerMeters, of_status

CommitResult = Literal["success", "failure"]
ReloadResult = Literal["success", "refused"]

_LEVELS = ("debug", "info", "warning", "error", "critical")
_BY_TABLE = ("binlane_retries_total", "binlane_dead_letters_total")
_COUNTED = (
    "binlane_handler_seconds",
    "binlane_records_consumed_total",
    "binlane_records_skipped_total",
    "binlane_handler_failures_total",
    "binlane_transactions_cut_total",
    "binlane_expectations_failed_total",
    "binlane_lane_processes_ended_total",
    "binlane_unblocked_records_total",
    "binlane_backpressure_seconds_total",
    "binlane_commits_total",
    "binlane_rebalances_total",
    "binlane_kafka_errors_total",
    "binlane_reloads_total",
    "binlane_spans_exported_total",
    "binlane_spans_dropped_total",
    "binlane_schemas_rebuilt_total",
    "binlane_last_reload_successful",
    "binlane_last_commit_timestamp_seconds",
    *_BY_TABLE,
)
_FROM_ZERO = {
    "binlane_records_skipped_total": ("failed", "undecodable", "unmatched"),
    "binlane_unblocked_records_total": ("skip", "dead_letter"),
    "binlane_reloads_total": ("success", "refused"),
    "binlane_rebalances_total": ("assign", "revoke", "lost"),
    "binlane_spans_dropped_total": ("queue_full", "export_failed", "too_many"),
}
"""Labels that start at 0, because alerts watch them: a counter that starts at 1 shows no increase."""


class Metrics(Collector):
    """All metrics of one worker, in their own registry.

    Any thread may call any method."""

    def __init__(
        self, version: str = __version__, log_limits: LogLimits = LIMITS, *, group: str = ""
    ) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._info = {"version": version, "group": group}
        self._log_limits = log_limits
        self._look: Callable[[], Look] | None = None
        self.tables = TableLabels(MAX_TABLE_LABELS)
        self.handlers = HandlerMeters(self.tables)
        """Metrics that handlers report."""
        self._meters = {name: meter(name) for name in _COUNTED}
        self._times: dict[str, Histogram] = {}  # by handler
        self._set("binlane_last_reload_successful", 1)
        for name, labels in _FROM_ZERO.items():
            for label in labels:
                self.count(name, label, amount=0)
        self.registry.register(self)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)

    def attach(self, look: Callable[[], Look]) -> None:
        """Set the source of lanes, tables and partitions, which is read at each scrape."""
        self._look = look

    def consumed(self, topic: str, partition: int, records: int) -> None:
        self.count("binlane_records_consumed_total", topic, partition, amount=records)

    def count(self, metric: str, *labels: object, amount: float = 1) -> None:
        """Add to a counter that this class keeps. `labels`: their values, in the order of its definition."""
        counter = self._meters[metric]
        if definition(metric).labels[:1] == ("table",):
            labels = (self.tables.label(str(labels[0])), *labels[1:])
        assert isinstance(counter, Counter)
        (counter.labels(*labels) if labels else counter).inc(amount)

    def reload(self, result: ReloadResult) -> None:
        self.count("binlane_reloads_total", result)
        self._set("binlane_last_reload_successful", result == "success")

    def commit(self, store: str, result: CommitResult) -> None:
        for known in ("success", "failure"):  # both exist from the first commit on
            self.count("binlane_commits_total", store, known, amount=known == result)
        if result == "success":
            self._set("binlane_last_commit_timestamp_seconds", time.time(), store)

    def called(self, handler: str, seconds: float) -> None:
        """Count one call of a handler. Takes about 1 us, after the handler's first one."""
        if (times := self._times.get(handler)) is None:
            meter = self._meters["binlane_handler_seconds"]
            assert isinstance(meter, Histogram)
            times = self._times[handler] = meter.labels(handler)
            self.count("binlane_handler_failures_total", handler, amount=0)
        times.observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics. The registry calls this at each scrape."""
        info = definition("binlane_info")
        yield InfoMetricFamily(info.family, info.help, self._info)

        levels, left_out = self._log_limits.counts()
        for name, counts in (
            ("binlane_log_events_total", dict.fromkeys(_LEVELS, 0) | levels),
            ("binlane_log_lines_left_out_total", dict.fromkeys(STORMY, 0) | left_out),
        ):
            yield family(name, *(([label], count) for label, count in counts.items()))

        look = None if self._look is None else self._look()
        status = look.status if look is not None else None
        if look is not None and status is not None:
            # All start at 0, so that a table's first retry, dead letter or unmet rule shows as an increase.
            for table, _ in look.finished:
                for name in _BY_TABLE:
                    self.count(name, table, amount=0)
            for table, rule in look.expectations:
                self.count("binlane_expectations_failed_total", table, rule, amount=0)
            yield from of_status(look, self.tables)
        yield from self.handlers.collect(status.handlers if status is not None else ())

        yield from self.tables.families(self._meters.values())

    def _set(self, metric: str, value: float, *labels: str) -> None:
        gauge = self._meters[metric]
        assert isinstance(gauge, Gauge)
        (gauge.labels(*labels) if labels else gauge).set(value)
