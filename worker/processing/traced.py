"""The tracing variants of a worker's parts. Without tracing, nothing of tracing is imported."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from handlers import Batch
from offsets.types import Checkpoint
from worker.attempts.retry_and_split import HandlerRun
from worker.attempts.steps import Caller
from worker.configuration import Configuration, Secrets
from worker.lanes.lanes import Lanes
from worker.observing.metrics import Metrics
from worker.processing.failures import Failures
from worker.processing.processor import Outcome, Processor
from worker.units.assigned_partition import Assignment
from worker.units.work import Work

if TYPE_CHECKING:
    from worker.tracing.batches import BatchTrace
    from worker.tracing.tracing import Tracing

_Saved = Callable[[Mapping[Assignment, Checkpoint]], None]


class TracedProcessor(Processor):
    """Starts and ends spans around a processor's steps. Tracing never changes what happens to a batch."""

    def __init__(self, number: int, lanes: Lanes, metrics: Metrics, *, tracing: Tracing, **more: Any) -> None:
        super().__init__(number, lanes, metrics, **more)
        self._tracing = tracing
        self._failures = TracedFailures(tracing, more["rules"], lanes, metrics, more["clock"])

    def _work(self, work: Work) -> Work | None:
        trace = self._tracing.begin(work)
        if trace is None:
            return super()._work(work)
        try:
            done = super()._work(work)
        except BaseException as error:
            trace.end("stopped", self._tracing.fault(error))
            raise
        if done is not None:
            self._tracing.finished(trace)
        return done

    def _decoded(self, work: Work) -> Work | None:
        trace = _of(work)
        begun = time.time_ns()
        prepared = super()._decoded(work)
        if trace is None:
            return prepared
        trace.decoded(begun, time.time_ns())
        if prepared is None:
            trace.end("undecodable")
        elif prepared is not work:
            prepared.trace = trace
            trace.narrowed(prepared.chunks, prepared.records)
        return prepared

    def _promise(self, work: Work) -> bool:
        return False

    def _try_alone(self, work: Work) -> list[Outcome] | None:
        return self._step(work)  # each call goes through the failures, which trace it

    def _spread(self, work: Work) -> None:
        trace = _of(work)
        super()._spread(work)
        if trace is not None:
            trace.end("spread")


class TracedFailures(Failures):
    """Adds the events of a batch to its trace."""

    def __init__(self, tracing: Tracing, *parts: Any) -> None:
        super().__init__(*parts)
        self._tracing = tracing

    def _call(self, work: Work, run: Caller, batch: Batch) -> None:
        trace = _of(work)
        if trace is None:
            super()._call(work, run, batch)
            return
        with trace.attempt(run.name, batch):
            super()._call(work, run, batch)

    def skipped(self, work: Work, handler: str, place: int, error: BaseException) -> None:
        super().skipped(work, handler, place, error)
        self._event(work, "skipped", handler, error)

    def dead_letter(self, work: Work, handler: str, place: int, error: BaseException, attempts: int) -> None:
        super().dead_letter(work, handler, place, error, attempts)
        self._event(work, "dead_letter", handler, error)

    def retried(self, work: Work, failing: list[HandlerRun], delay: float, reason: str) -> None:
        super().retried(work, failing, delay, reason)
        trace = _of(work)
        if trace is not None:
            names = [run.name for run in failing]
            trace.event("retry", {"binlane.handlers": names, "binlane.delay_seconds": round(delay, 3)})

    def halted(self, work: Work, position: str, reason: str) -> None:
        super().halted(work, position, reason)
        trace = _of(work)
        if trace is not None:
            trace.end("halted", self._tracing.fault(RuntimeError(reason)))

    def _event(self, work: Work, name: str, handler: str, error: BaseException) -> None:
        trace = _of(work)
        if trace is not None:
            trace.event(name, {"binlane.handler": handler, **self._tracing.fault(error).attributes()})


def _of(work: Work) -> BatchTrace | None:
    return getattr(work, "trace", None)


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
    return partial(TracedProcessor, tracing=tracing)


def saved(tracing: Tracing | None, journal: _Saved | None) -> _Saved:
    """Combine the two recipients of what the committer has saved."""
    told: list[_Saved] = [each for each in (journal, None if tracing is None else tracing.committed) if each]

    def all_of_them(found: Mapping[Assignment, Checkpoint]) -> None:
        for each in told:
            each(found)

    return all_of_them
