"""The client library's objects of the metrics that `metric_definitions` names."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from worker.observing.histogram import BOUNDS
from worker.observing.metric_definitions import definition

Meter = Counter | Gauge | Histogram


def meter(name: str) -> Meter:
    """What counts or measures as things happen, in no registry."""
    entry = definition(name)
    if entry.kind == "histogram":
        return Histogram(entry.family, entry.help, entry.labels, registry=None, buckets=BOUNDS)
    return (Counter if entry.kind == "counter" else Gauge)(
        entry.family, entry.help, entry.labels, registry=None
    )


def family(name: str) -> CounterMetricFamily | GaugeMetricFamily:
    """What takes figures that are kept elsewhere, for one scrape."""
    entry = definition(name)
    kind = CounterMetricFamily if entry.kind == "counter" else GaugeMetricFamily
    return kind(entry.family, entry.help, labels=entry.labels)


def families(meter: Meter) -> Iterator[Metric]:
    """What the meter shows, without the library's `_created` series: one more each that nobody asks for."""
    for found in meter.collect():
        found.samples = [sample for sample in found.samples if not sample.name.endswith("_created")]
        yield found
