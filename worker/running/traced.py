"""The tracing variants of a worker's parts. Without tracing, nothing of tracing is imported."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from offsets.types import Checkpoint
from worker.configuration import Configuration, Secrets
from worker.observing.metrics import Metrics
from worker.processing.processor import Processor
from worker.units.assigned_partition import Assignment

if TYPE_CHECKING:
    from worker.tracing.tracing import Tracing

Saved = Callable[[Mapping[Assignment, Checkpoint]], None]


def tracing_of(configuration: Configuration, metrics: Metrics) -> Tracing | None:
    """Return the tracing, or None if `tracing` or OTEL_SDK_DISABLED turn it off."""
    if configuration.tracing is None:
        return None
    from worker.tracing.provider import header_values, is_disabled  # noqa: PLC0415  # an extra installs it
    from worker.tracing.tracing import Tracing  # noqa: PLC0415

    if is_disabled(os.environ):
        return None
    configuration.secrets.learn(Secrets(header_values(os.environ)))
    tracing = Tracing(
        configuration.tracing,
        metrics,
        worker=configuration.name,
        group=configuration.kafka.group_id,
        redact=configuration.secrets.redact,
        environment=os.environ,
    )
    tracing.share()
    return tracing


def processors(tracing: Tracing | None) -> Callable[..., Processor]:
    """Return the callable that makes a processor."""
    if tracing is None:
        return Processor
    from worker.processing.traced_processor import TracedProcessor  # noqa: PLC0415

    return partial(TracedProcessor, tracing=tracing)


def saved(tracing: Tracing | None, journal: Saved | None) -> Saved:
    """Combine the two recipients of what the committer has saved."""
    told: list[Saved] = [each for each in (journal, None if tracing is None else tracing.committed) if each]

    def all_of_them(found: Mapping[Assignment, Checkpoint]) -> None:
        for each in told:
            each(found)

    return all_of_them
