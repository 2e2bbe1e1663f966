"""The Prometheus client's objects for the metrics, and the limit on values of their label `table`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.samples import Sample

from worker.observing.histogram import BOUNDS
from worker.observing.metric_definitions import definition

Meter = Counter | Gauge | Histogram
MAX_TABLE_LABELS = 1_000
OTHER_TABLES = "__other__"
Combine = Callable[[Iterable[float]], float]


def meter(name: str) -> Meter:
    """Create a meter that counts or measures events as they happen. It belongs to no registry."""
    entry = definition(name)
    if entry.kind == "histogram":
        return Histogram(entry.family, entry.help, entry.labels, registry=None, buckets=BOUNDS)
    return (Counter if entry.kind == "counter" else Gauge)(
        entry.family, entry.help, entry.labels, registry=None
    )


def family(name: str) -> CounterMetricFamily | GaugeMetricFamily:
    """Create a family for values that are kept elsewhere, for one scrape."""
    entry = definition(name)
    kind = CounterMetricFamily if entry.kind == "counter" else GaugeMetricFamily
    return kind(entry.family, entry.help, labels=entry.labels)


def families(meter: Meter) -> Iterator[Metric]:
    """Yield the meter's families without the library's `_created` series, which nobody needs."""
    for found in meter.collect():
        found.samples = [sample for sample in found.samples if not sample.name.endswith("_created")]
        yield found


class TableLabels:
    """Limits the values of the label `table` across all metrics that have it.

    The first `limit` tables have their own values. If there are more, the last of these joins the rest, so
    that `__other__` counts towards the limit too.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._names: set[str] = set()
        self._last = ""
        self._over = False
        self._lock = threading.Lock()  # guards all fields above; membership may be read without it

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
