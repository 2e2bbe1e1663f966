"""What defines a metric: its name, kind, labels and help."""

from __future__ import annotations

from typing import Literal, NamedTuple

PARTITION = ("topic", "partition")
"""The labels of a metric for each partition."""

MetricKind = Literal["counter", "gauge", "histogram", "info"]


class MetricDefinition(NamedTuple):
    name: str
    """As Prometheus shows it: a counter with its `_total`."""
    kind: MetricKind
    labels: tuple[str, ...]
    help: str
    by: Literal["worker", "handler"] = "worker"
    """Who reports it: of a handler's metrics each shows from its first value on."""

    @property
    def family(self) -> str:
        """The name the client library builds the sample names from."""
        return self.name.removesuffix("_total").removesuffix("_info")
