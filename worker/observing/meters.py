"""Create the Prometheus client's objects for the metrics in `metric_definitions`."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from worker.observing.histogram import BOUNDS
from worker.observing.metric_definitions import definition

Meter = Counter | Gauge | Histogram


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
