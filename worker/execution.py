"""One handler's way through one batch: attempts, backoff, splitting until the failing change stands alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from handlers import Handler, PartialFailure, StopWorker
from worker.configuration import RetryRule

if TYPE_CHECKING:
    from worker.work import Work

__all__ = ["HandlerRun", "Step", "Witness", "backoff", "describe"]


def backoff(rule: RetryRule, attempt: int, random: Callable[[], float]) -> float:
    """Seconds to wait after the failed `attempt` (from 1): exponential with jitter, at most `max_delay`.

    `random` gives numbers from 0 to 1.
    """
    try:
        growth = rule.multiplier ** (attempt - 1)
    except OverflowError:
        growth = sys.float_info.max
    delay = min(rule.max_delay, rule.initial_delay * growth)
    return min(rule.max_delay, delay * (1 + rule.jitter * (2 * random() - 1)))


def describe(error: BaseException) -> str:
    """One line for status and log: the kind of error and its text, shortened."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # a handler's own error class may be faulty, too
        text = ""
    return f"{type(error).__name__}: {text[:500]}" if text else type(error).__name__


class Step(Enum):
    DONE = "done"
    RETRY = "retry"
    """Again after `delay` seconds."""
    HALT = "halt"
    """The change at `done` failed for good, and the table's rule says halt."""
    STOPPED = "stopped"
    """Not done, because the work was called off."""


class Witness(Protocol):
    """Who is told what happens on the way."""

    def failed(self, handler: str, error: BaseException) -> None:
        """One call of the handler failed."""

    def skipped(self, work: Work, handler: str, place: int, error: BaseException) -> None:
        """The change at `place` failed for good and is passed over."""

    def called_off(self, work: Work) -> bool:
        """Whether nothing more of this batch may begin."""
        ...


class HandlerRun:
    """How far one handler is with one batch.

    The changes before `done` are applied. `ends` is a stack: the piece being tried ends at its top, and
    what was split off waits below.
    """

    __slots__ = ("applied", "attempt", "delay", "done", "ends", "error", "handler", "name", "splitting")

    def __init__(self, name: str, handler: Handler, total: int) -> None:
        self.name = name
        self.handler = handler
        self.done = 0
        self.applied = 0
        """Changes that the handler says it applied of a batch that is not decoded, so counted in records."""
        self.ends = [total] if total else []
        self.attempt = 1
        self.splitting = False
        """The attempts of this batch are used up."""
        self.delay = 0.0
        self.error: BaseException | None = None

    @property
    def finished(self) -> bool:
        return not self.ends

    def decoded(self, total: int) -> HandlerRun:
        """The same run when a batch that was counted in records is now counted in `total` changes."""
        done = total if self.finished else min(self.applied, total)
        run = HandlerRun(self.name, self.handler, 0 if done == total else total)
        run.done = done
        run.attempt, run.splitting, run.delay, run.error = (
            self.attempt,
            self.splitting,
            self.delay,
            self.error,
        )
        return run

    def step(
        self,
        work: Work,
        witness: Witness,
        random: Callable[[], float],
        raised: BaseException | None = None,
    ) -> Step:
        """Go on until the batch is done, must wait, or cannot go on. Raises StopWorker only.

        `raised`: what the first call has raised, if it was made already."""
        while self.ends:
            end = self.ends[-1]
            if raised is not None:
                error, raised = self._judge(work, end, raised), None
            elif witness.called_off(work):
                return Step.STOPPED
            else:
                error = self._call(work, end)
            if error is None:
                self._pass(end)
                continue
            witness.failed(self.name, error)
            self.error = error
            wait = self._after_failure(work, end, error, witness, random)
            if wait is not None:
                return wait
        self.error = None
        return Step.DONE

    def _call(self, work: Work, end: int) -> BaseException | None:
        batch = work.batch(self.done, end, self.attempt)
        try:
            self.handler.handle(batch)
        except BaseException as raised:  # whatever a handler raises, SystemExit too, is its batch's failure
            return self._judge(work, end, raised)
        return None

    def _judge(self, work: Work, end: int, raised: BaseException) -> BaseException | None:
        """What kept the handler from applying all up to `end`; None when nothing did. Raises StopWorker."""
        if isinstance(raised, StopWorker):
            raise raised
        if not isinstance(raised, PartialFailure):
            return raised
        decoded, most = work.changes is not None, end - self.done
        if isinstance(raised.done, int) and raised.done > 0 and (raised.done <= most or not decoded):
            if decoded:
                self.done += raised.done
            else:
                self.applied = raised.done
            # Another change is the first one now: its attempts begin anew.
            self.attempt = 0
            self.splitting = False
        return None if self.done == end else raised.cause or raised

    def _after_failure(
        self, work: Work, end: int, error: BaseException, witness: Witness, random: Callable[[], float]
    ) -> Step | None:
        rule = work.unit.table.rule
        attempt, self.attempt = self.attempt, self.attempt + 1
        if not self.splitting:
            most = rule.retry.max_attempts
            if most is None or attempt < most:
                self.delay = backoff(rule.retry, max(attempt, 1), random)
                return Step.RETRY
            self.splitting = True
        if work.changes is None:  # only decoded changes can be split
            self.delay = 0.0
            return Step.RETRY
        if end - self.done > 1:
            self.ends.append(self.done + (end - self.done) // 2)
            return None
        if rule.on_failure == "skip":
            witness.skipped(work, self.name, self.done, error)
            self._pass(end)
            return None
        return Step.HALT

    def _pass(self, end: int) -> None:
        self.done = end
        while self.ends and self.ends[-1] <= end:
            self.ends.pop()
