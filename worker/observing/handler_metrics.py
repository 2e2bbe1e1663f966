"""The metrics that handlers report, and those read from handlers' statuses."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import Counter, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from worker.observing.meters import Meter, families, family, meter
from worker.observing.metric_definitions import definition
from worker.observing.overview.ranking import handled_tables
from worker.observing.table_labels import Combine, TableLabels

_SPARK_RESULTS = ("success", "failure")


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
        for each in meters:
            for found in families(each):
                if isinstance(each, Counter) and found.samples and "table" in found.samples[0].labels:
                    found.samples = self._tables.fold(found.samples)
                yield found

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
    gauge = family("binlane_spark_up")
    for name, up in found.items():
        gauge.add_metric([name], up)
    return gauge
