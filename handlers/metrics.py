"""How a handler counts what it does outside of `handle`, without knowing who exposes it."""

from __future__ import annotations

from typing import Protocol


class HandlerMetrics(Protocol):
    """What `HandlerContext.metrics` offers. Any thread may call it.

    `metric` is a name that the worker defines (worker/observing/metric_definitions.py), as Prometheus shows
    it; the labels are all of its labels. Raises KeyError for a metric that is not defined. Values that stand
    rather than happen (rows that wait) belong into `Handler.status`, which is read at each scrape."""

    def count(self, metric: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""

    def observe(self, metric: str, value: float, **labels: str) -> None:
        """Add one value, in seconds, to a histogram."""


class _NoMetrics:
    """Where nobody scrapes: tests, and commands that open a handler for a moment."""

    def count(self, metric: str, amount: float = 1, **labels: str) -> None:
        pass

    def observe(self, metric: str, value: float, **labels: str) -> None:
        pass


NO_METRICS: HandlerMetrics = _NoMetrics()
