"""How a handler counts work outside of `handle`, without knowing who exposes the metrics."""

from __future__ import annotations

from typing import Protocol


class HandlerMetrics(Protocol):
    """The interface of `HandlerContext.metrics`. Any thread may call it.

    `metric` is a name defined in worker/observing/metric_definitions.py, as Prometheus shows it. Pass all
    labels of the metric. Raises KeyError for an undefined metric. Gauges (such as waiting rows) belong in
    `Handler.status` instead, which is read at each scrape."""

    def count(self, metric: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""

    def observe(self, metric: str, value: float, **labels: str) -> None:
        """Add one value, in seconds, to a histogram."""


class _NoMetrics:
    """Used if nobody scrapes: in tests, and in commands that open a handler briefly."""

    def count(self, metric: str, amount: float = 1, **labels: str) -> None:
        pass

    def observe(self, metric: str, value: float, **labels: str) -> None:
        pass


NO_METRICS: HandlerMetrics = _NoMetrics()
