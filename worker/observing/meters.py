"""The Prometheus client's meters behind the metrics, and the limit on values of the label `table`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

import prometheus_client
from prometheus_client import Counter, Gauge
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.samples import Sample

from worker.observing.metric_definitions import definition

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Inclusive upper bounds of a histogram's buckets, in seconds. One more bucket counts longer calls."""

Meter = Counter | Gauge | prometheus_client.Histogram
MAX_TABLE_LABELS = 1_000
OTHER_TABLES = "__other__"
Combine = Callable[[Iterable[float]], float]


def meter(name: str) -> Meter:
    """Create a meter that counts or measures events as they happen. It belongs to no registry."""
    entry = definition(name)
    if entry.kind == "histogram":
        return prometheus_client.Histogram(
            entry.family, entry.help, entry.labels, registry=None, buckets=BOUNDS
        )
    return (Counter if entry.kind == "counter" else Gauge)(
        entry.family, entry.help, entry.labels, registry=None
    )


def family(name: str, *values: tuple[Sequence[str], float | None]) -> CounterMetricFamily | GaugeMetricFamily:
    """Create a family for values that are kept elsewhere, for one scrape. `values`: each with its labels.
    Unknown values (None) have no sample, because 0 would be wrong."""
    entry = definition(name)
    kind = CounterMetricFamily if entry.kind == "counter" else GaugeMetricFamily
    made = kind(entry.family, entry.help, labels=entry.labels)
    for labels, value in values:
        if value is not None:
            made.add_metric([*labels], value)
    return made


class TableLabels:
    """Limits the values of the label `table` across all metrics that have it.

    The first `limit` tables have their own values. If there are more, the last of these joins the rest, so
    that `__other__` counts towards the limit too."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._names: set[str] = set()
        self._last = ""
        self._over = False
        self._lock = threading.Lock()  # guards all fields above; membership may be read without it

    def families(self, meters: Iterable[Meter]) -> Iterator[Metric]:
        """Yield the meters' families, folded, without the library's `_created` series, which nobody needs."""
        for each in meters:
            for found in each.collect():
                found.samples = [one for one in found.samples if not one.name.endswith("_created")]
                if isinstance(each, Counter) and all(one.labels.keys() == {"table"} for one in found.samples):
                    found.samples = self.fold(found.samples)
                yield found

    def label(self, table: str) -> str:
        if table in self._names:
            return table
        with self._lock:
            if table not in self._names:
                if len(self._names) >= self._limit:
                    self._over = True
                    return OTHER_TABLES
                self._names.add(table)
                self._last = table
        return table

    def fold(self, samples: Sequence[Sample], combine: Combine = sum) -> list[Sample]:
        """Combine the samples of all tables without their own value into one."""
        with self._lock:
            rest = {OTHER_TABLES, self._last} if self._over else {OTHER_TABLES}
        kept = [sample for sample in samples if sample.labels["table"] not in rest]
        folded = [sample for sample in samples if sample.labels["table"] in rest]
        if folded:
            value = combine(sample.value for sample in folded)
            kept.append(Sample(folded[0].name, {**folded[0].labels, "table": OTHER_TABLES}, value))
        return kept
