"""Run one handler on one batch: attempts up to `retry.max_attempts`, backoff, and splitting until the failing
change is isolated."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from handlers import PartialFailure, Rejected, StopWorker, TargetUnavailable
from handlers.failures import AskAgain
from worker.attempts.backoff import backoff, seconds_to_wait, text_of
from worker.attempts.circuit import BoundHandler
from worker.attempts.limit import Limited
from worker.attempts.steps import ORDERED, MustHalt, MustWait, ProcessAway, ProcessDied, Step, Tried, Watch

Work = TypeVar("Work", bound=Tried)
_ALONE = 5.0
"""Seconds between attempts of a table if the target is unavailable to that table only."""


class _Fate(NamedTuple):
    """Why a change is no longer passed to the handler."""

    error: BaseException
    attempts: int


class HandlerRun:
    """The progress of one handler in one batch.

    The changes before `done` are applied, skipped or dead-lettered. `ends` is a stack. Its top is the end of
    the piece that is tried next. The entries below are the ends of the pieces after it."""

    def __init__(self, bound: BoundHandler, lane: int, total: int) -> None:
        self.name = bound.name
        self.bind(bound, lane)
        self.done = 0
        self.ends = [total] if total else []
        self.attempt = 1
        self.splitting = False
        """Whether the attempts of this batch are exhausted."""
        self.delay = 0.0
        """Seconds until it may continue. Infinity: until the handler's limit allows its next call."""
        self.accepted = False
        """Whether the handler has the next call's changes, and is only asked for the result."""
        self.retry_at = 0.0
        """Clock time of the next attempt, after one that failed."""
        self.error: BaseException | None = None
        self.turn = 0
        """The circuit's turn in which it admitted the current call."""
        self.seconds: list[float] = []
        """Durations of the calls that the processor has not counted yet."""
        self._condemned: dict[int, _Fate] = {}
        """Index -> fate of each change that failed permanently and is not settled yet."""

    @property
    def finished(self) -> bool:
        return not self.ends

    def bind(self, bound: BoundHandler, lane: int) -> None:
        """Continue with the handler's object for this lane."""
        self.handler, self.circuit, self.limit = bound.of(lane), bound.circuit, bound.limit

    def waits(self, work: Tried, random: Callable[[], float]) -> float:
        """Return the seconds until its target may be asked; 0.0: now, or something else comes first."""
        if self.done in self._condemned:
            return 0.0
        return self.circuit.waiting(_delays(work, random), work.table)

    def let_go(self) -> None:
        """Forget the frames of its errors. Their variables contain the rows that were being handled."""
        left = [self.error, *(fate.error for fate in self._condemned.values())]
        known: set[int] = set()
        while left:
            error = left.pop()
            if error is not None and id(error) not in known:
                known.add(id(error))
                error.__traceback__ = None
                left += [error.__cause__, error.__context__]

    def begin_anew(self) -> None:
        """Reset the attempts of all unfinished changes, because the rule or the handler has changed."""
        self.attempt, self.splitting, self.delay, self.error = 1, False, 0.0, None
        self.accepted, self.retry_at = False, 0.0
        self._condemned.clear()

    def step(
        self, work: Work, watch: Watch[Work], random: Callable[[], float], raised: BaseException | None = None
    ) -> Step:
        """Continue until the batch is done, must wait, or cannot continue. Raises only StopWorker.

        `raised` is the error of the first call, if the caller has already made it (on `turn`)."""
        while self.ends:
            end = self.ends[-1]
            ordered = work.ordered(self.done)
            if raised is None:
                if watch.called_off(work):
                    return Step.STOPPED
                # What a handler has accepted is not paused: its result is still asked for.
                paused = None if self.accepted else watch.paused(work, self.name)
                if paused is not None:
                    self.error, self.delay = paused, paused.wait
                    return Step.BLOCKED
                if self.done in self._condemned:
                    step = self._settle(work, watch)
                    if step is not None:
                        return step
                    continue
                cut = work.next_order(self.done) if ordered is None else ordered[0]
                if cut is not None and cut < end:
                    end = cut
                    self.ends.append(end)
                self.turn, wait = self.circuit.admit(_delays(work, random), work.table)
                if wait > 0:
                    return self._wait_for_target(wait)
                raised = self._call(work, end, watch)
            if isinstance(raised, StopWorker):
                raise raised
            step = self._judge(work, end, raised, watch, random)
            raised = None
            if step is not None:
                if ordered is None or self.error is None or step is Step.ASK_AGAIN:
                    return step
                # That was the record's last attempt: condemn its changes that are not done.
                for place in work.borders(self.done, end)[:-1]:
                    self._condemned[place] = _Fate(self.error, max(self.attempt - 1, 1))
        self.error = None
        return Step.DONE

    def _call(self, work: Work, end: int, watch: Watch[Work]) -> BaseException | None:
        try:
            watch.call(work, self, work.batch(self.done, end, self.attempt))
        except BaseException as raised:  # whatever a handler raises (even SystemExit) fails its batch
            return raised
        return None

    def _wait_for_target(self, wait: float) -> Step:
        down = self.circuit.down()
        self.delay = wait if down is not None else 0.0
        self.error = TargetUnavailable(down.reason if down is not None else "the target was down until now")
        return Step.BLOCKED

    def _judge(
        self,
        work: Work,
        end: int,
        raised: BaseException | None,
        watch: Watch[Work],
        random: Callable[[], float],
    ) -> Step | None:
        """Decide what follows a call up to `end`. Return None to continue."""
        if isinstance(raised, AskAgain):
            if isinstance(raised, Limited):
                self.circuit.not_called(self.turn)
            else:
                self._answered(watch)
                self.error, self.accepted = None, True
            self.delay = raised.seconds
            return Step.ASK_AGAIN
        error, known, began, self.accepted = raised, False, self.done, False
        if isinstance(raised, PartialFailure):
            known = self._advance(work.borders(self.done, end), raised)
            error = None if self.done == end else raised.cause or raised
        before = self.error
        if error is not None:
            watch.failed(self.name, error)
            self.error = error
        if isinstance(error, TargetUnavailable) and not error.others_go_on:
            if not isinstance(before, TargetUnavailable) or not self.circuit.closed:
                return self._unavailable(work, error, watch, random)
            # The target has answered other tables since, so it is unavailable to this table only.
            wait = max(_ALONE, seconds_to_wait(error.retry_after))
            self.error = error = TargetUnavailable(text_of(error), retry_after=wait, others_go_on=True)
        self._answered(watch, raised)
        if isinstance(error, TargetUnavailable):
            if not isinstance(before, TargetUnavailable) or not before.others_go_on:
                watch.held_up(work, self.name, error)
            # A process must be asked often: other batches use it meanwhile.
            own = 0.0 if isinstance(error, ProcessAway) else backoff(work.rule.retry, 1, random)
            self.delay = max(own, seconds_to_wait(error.retry_after))
            return Step.BLOCKED
        if error is None:
            self._pass(end)
            return None
        if isinstance(error, Rejected):
            at = 0 if known else None if isinstance(raised, PartialFailure) else _index(error.at)
            self._single_out(work.borders(self.done, end), at, _Fate(error, self.attempt))
            return None
        if self.done > began:
            self.attempt = 0
        return self._after_failure(work, end, error, random)

    def _answered(self, watch: Watch[Work], raised: BaseException | None = None) -> None:
        if isinstance(raised, ProcessAway | ProcessDied):  # the target may still be down
            self.circuit.not_called(self.turn)
            return
        down = self.circuit.answered(self.turn)
        if down is not None:
            watch.target_up(self.name, down)

    def _advance(self, borders: list[int], raised: PartialFailure) -> bool:
        """Advance `done` as a partial failure says, down to a border. Return False if it is impossible."""
        done = _index(raised.done)
        if done is None or done > borders[-1] - self.done:
            return False
        place = borders[bisect_right(borders, self.done + done) - 1]
        if place > self.done:
            # Another change is the first one now, so reset the attempts.
            self.done, self.attempt, self.splitting = place, 1, False
        return True

    def _unavailable(
        self, work: Work, error: TargetUnavailable, watch: Watch[Work], random: Callable[[], float]
    ) -> Step:
        asked = seconds_to_wait(error.retry_after)
        refusal = self.circuit.failed(self.turn, text_of(error), _delays(work, random), asked, work.table)
        if refusal.opened:
            watch.target_down(self.name, error)
        self.delay = refusal.wait
        return Step.BLOCKED

    def _single_out(self, borders: list[int], at: int | None, fate: _Fate) -> None:
        """Condemn the change at `done` + `at` and those inseparable from it. If `at` is None, halve the piece
        to find the failing change."""
        place = self.done + (at or 0)
        if at is None or place >= borders[-1]:
            if len(borders) > 2:
                self.ends.append(borders[(len(borders) - 1) // 2])
                return
            place = self.done
        number = bisect_right(borders, place)
        begin, end = borders[number - 1], borders[number]
        self._condemned[begin] = fate
        self.ends += [each for each in (end, begin) if self.done < each < borders[-1]]

    def _after_failure(
        self, work: Tried, end: int, error: BaseException, random: Callable[[], float]
    ) -> Step | None:
        retry = work.rule.retry
        if work.ordered(self.done) is None and text_of(error).startswith(ORDERED):
            self.attempt, self.delay = max(self.attempt, 1), 1.0  # its order comes within that
            return Step.RETRY
        attempt, self.attempt = self.attempt, self.attempt + 1
        if not self.splitting and work.ordered(self.done) is None:
            if retry.max_attempts is None or attempt < retry.max_attempts:
                self.delay = backoff(retry, max(attempt, 1), random)
                return Step.RETRY
            self.splitting = True
        self._single_out(work.borders(self.done, end), None, _Fate(error, attempt))
        return None

    def _settle(self, work: Work, watch: Watch[Work]) -> Step | None:
        """Apply the table's rule to the permanently failed change at `done`. Return None if it is settled."""
        place = self.done
        error, attempts = self._condemned[place]
        # Halving to find the change does not count as an attempt.
        attempts = min(attempts, work.rule.retry.max_attempts or attempts)
        ordered = work.ordered(place)
        action = work.rule.on_failure if ordered is None else ordered[1].action
        halt = error if action == "halt" else None
        try:
            if action == "skip":
                watch.skipped(work, self.name, place, error)
            elif action == "dead_letter":
                watch.dead_letter(work, self.name, place, error, attempts)
        except MustHalt as flood:
            halt = flood
        except MustWait as fault:
            self.error, self.delay = fault, fault.wait
            return Step.BLOCKED
        # If a halted table continues, its cause was fixed: the change is tried again.
        del self._condemned[place]
        if halt is not None:
            self.error = halt
            return Step.HALT
        self._pass(work.borders(place, self.ends[-1])[1])
        if ordered is not None and self.done == ordered[0]:
            self.attempt = 1  # the next record is the first one now
        return None

    def _pass(self, end: int) -> None:
        self.done, self.delay = end, 0.0
        while self.ends and self.ends[-1] <= end:
            self.ends.pop()


def _index(found: object) -> int | None:
    """Return `found` if it can be a number of changes, else None."""
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None


def _delays(work: Tried, random: Callable[[], float]) -> Callable[[int], float]:
    return partial(backoff, work.rule.retry, random=random)
