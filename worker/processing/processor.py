"""Processors: one thread per lane that decodes batches and calls their table's handlers."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from handlers import StopWorker
from handlers.loading.user_code import refuse_unrun
from worker.attempts.backoff import describe, text_of
from worker.attempts.retry_and_split import HandlerRun
from worker.attempts.steps import MustHalt, MustWait, ProcessAway, Step
from worker.attempts.table_pauses import Paused
from worker.column_rules.judging import Unmet
from worker.lanes.lanes import Lanes
from worker.observing.metrics import Metrics
from worker.processing.failures import FailureRules, Failures, words_of
from worker.processing.slow_calls import origin_of, record_origin
from worker.units.sharding import spread
from worker.units.unit import Turns, Unit
from worker.units.work import Work

_MOST_HANDLERS = 64  # of one table at once; threads are only made when needed

_PROMISED_BYTES = 1 << 20
"""The most bytes of a batch whose first call decodes it, too. That takes some milliseconds."""

Outcome = tuple[HandlerRun, Step]


class _NotDecoded(Exception):
    """The first call of a batch was not made, because it could not be decoded."""


class Processor(threading.Thread):
    """Takes batches from the lanes until they are stopped.

    `fail` is called with the error that must stop the worker: a handler's StopWorker, or an error of this
    thread itself."""

    def __init__(
        self,
        number: int,
        lanes: Lanes,
        metrics: Metrics,
        *,
        rules: FailureRules,
        clock: Callable[[], float],
        random: Callable[[], float],
        fail: Callable[[BaseException], None],
    ) -> None:
        super().__init__(name=f"processor-{number}", daemon=True)
        self._number = number
        self._lanes = lanes
        self._lane = lanes.lanes[number]
        self._called = metrics.called
        self._failures = Failures(rules, lanes, metrics, clock)
        self._begin_call = rules.calls.begin
        self._end_call = rules.calls.end
        self._clock = clock
        self._random = random
        self._fail = fail
        self._pool: ThreadPoolExecutor | None = None
        self.dismissed = False
        """Whether it has ended, because its lane was removed or the lanes were stopped."""

    def call_off(self) -> None:
        """Start no further attempt. A running handler call continues to its end."""
        self._failures.call_off()

    def run(self) -> None:
        finished: Work | None = None
        try:
            while (work := self._lanes.take(self._number, finished)) is not None:
                finished = self._work(work)
                del work  # it may know files, which are deleted when nobody does
            self.dismissed = True
        except BaseException as error:
            self._fail(error)
        finally:
            if self._pool is not None:
                self._pool.shutdown(wait=False)

    def _work(self, work: Work) -> Work | None:
        """Return the work if it is finished. None: it was put back, or its unit halted."""
        if self._called_off(work):
            return None
        if work.parked:
            # To read the batch before its target may be asked would only cost time of other tables.
            waits = (run.waits(work, self._random) for run in work.runs if not run.finished)
            if work.unit.blocked and (wait := min(waits, default=0.0)) > 0:
                self._give_back(work, wait, work.unit.error, blocked=True)
                return None
            work.load()
        if not work.table.handlers:
            return self._bury_all(work)
        if not work.runs and not self._promise(work):
            return self._decode_and_handle(work)
        return self._handle(work)

    def _decode_and_handle(self, work: Work) -> Work | None:
        prepared = self._decoded(work)
        if prepared is None or prepared.finished == prepared.records:
            return prepared
        if prepared.spreads:
            self._spread(prepared)
            return None
        return self._handle(prepared)

    def _promise(self, work: Work) -> bool:
        """Whether its first call decodes it, too. Only small batches: a call may start as long after this."""
        table = work.table
        if table.elsewhere is None or table.stays or work.decoded_by is not None or not table.sole:
            return False
        [bound] = table.handlers
        waits = bound.limit.rule is not None or not bound.circuit.closed
        if waits or work.bytes > _PROMISED_BYTES or work.orders or work.continues:
            return False
        work.promise(self._lanes.seen.most_decoded)
        return True

    def _called_off(self, work: Work) -> bool:
        """Whether it must not start. It is then put back."""
        if self._failures.called_off(work):
            self._put_back(work, 0.0, work.unit.error)
        elif (paused := self._failures.all_paused(work)) is not None:  # then it is not even read or decoded
            self._give_back(work, paused.wait, str(paused), blocked=True, paused=True)
        else:
            return False
        return True

    def _handle(self, work: Work) -> Work | None:
        # Decoding may have taken a while.
        alone = work.table.sole and not work.runs and not work.orders and not self._failures.called_off(work)
        try:
            outcomes = self._try_alone(work) if alone else self._step_decoded(work)
        except _NotDecoded:
            return None if self._called_off(work) else self._decode_and_handle(work)
        except StopWorker as error:
            # Halted, not put back: otherwise another lane would start it again before the worker stops.
            self._lanes.halt(self._number, work, describe(error))
            raise
        if outcomes is None or all(run.finished for run in work.runs):
            self._count_finished(work.unit, work.finish_records(work.records))
            return work
        self._count_finished(work.unit, work.finish_changes(min(run.done for run in work.runs)))
        self._not_done(work, outcomes)
        return None

    def _spread(self, work: Work) -> None:
        """Distribute the rows of a table in row order to its shards."""
        result = spread(work)
        self._count_finished(work.unit, result.records)
        self._lanes.spread(self._number, work, result)

    def _count_finished(self, unit: Unit, records: int) -> None:
        """Count before the lanes know, because a table without further work may be released."""
        unit.finished_records += records
        self._lane.count_finished(records)

    def _decoded(self, work: Work) -> Work | None:
        """Decode the batch up to its first bad record. None: that is the first one, and was not finished.

        If the result is finished, it was only the bad record, which is now a dead letter."""
        if work.continues:
            self._failures.transaction_cut(work)
        try:
            found = work.decode(self._failures.passes_over, self._lanes.seen.most_decoded)
        except ProcessAway as away:
            self._give_back(work, away.wait, text_of(away), blocked=True)
            return None
        if found is None:
            return work
        place, fault = found
        if place:
            # Records before the bad one are handled first. The rest has its turn then.
            if work.table.whole:
                place = work.whole_records(place) or place
            return self._decoded(self._lanes.shorten(self._number, work, place))
        reason = str(fault) if isinstance(fault, Unmet) else f"undecodable record: {fault}"
        if not self._failures.buries(fault) and work.orders.get(0) is None:
            self._failures.count_unmet(fault)
            self._halt(work, record_origin(work, 0), reason)
            return None
        if work.records > 1:
            work = self._lanes.shorten(self._number, work, 1)
        if not self._bury(work, 0, reason):
            return None
        self._failures.count_unmet(fault)
        return work

    def _bury_all(self, work: Work) -> Work | None:
        """Write records without a known table as dead letters, one by one."""
        for number in range(work.finished, work.records):
            if self._called_off(work):
                return None
            why = self._failures.why_undecodable(work, number)
            if not self._bury(work, number, f"undecodable record: {why}"):
                return None
        return work

    def _bury(self, work: Work, number: int, reason: str) -> bool:
        """Finish the work's record as a dead letter. False: it must wait, or the unit halted."""
        try:
            self._failures.bury_undecodable(work, number, reason)
        except MustHalt as halt:
            self._halt(work, record_origin(work, number), str(halt))
            return False
        except MustWait as fault:
            self._give_back(work, fault.wait, text_of(fault), blocked=True)
            return False
        self._count_finished(work.unit, work.finish_records(number + 1))
        return True

    def _try_alone(self, work: Work) -> list[Outcome] | None:
        """Make the first call of a table's only handler, at the least cost. None: it succeeded."""
        promised = work.promised
        if not work.total and not promised:
            return None
        bound = work.table.handlers[0]
        if bound.limit.rule is not None:
            return self._step(work)
        turn, wait = bound.circuit.admit()
        if wait > 0:
            if promised:
                raise _NotDecoded
            return self._step(work)
        handler = bound.of(self._number)
        raised = work.take_raised()
        if raised is None:
            begin = self._clock()
            self._begin_call(bound.name, work, 0, begin, 1)
            try:
                answer = work.call(handler, work.batch(0, work.total, 1))
                if answer is not None:
                    refuse_unrun(answer, handler)
            except BaseException as error:
                raised = error
            finally:
                self._end_call()
                seconds = self._clock() - begin
                self._called(bound.name, seconds)
                work.unit.turns.called(bound.name, seconds)
        if promised and not work.keep_promise(self._failures.passes_over, raised):
            bound.circuit.not_called(turn)
            raised = None  # as below
            raise _NotDecoded
        if raised is None:
            self._failures.answered(bound, turn)
            return None
        run = HandlerRun(bound, self._number, work.total)
        run.turn = turn
        work.runs = [run]
        try:
            step = run.step(work, self._failures, self._random, raised)
        finally:
            raised = None  # otherwise, it and this frame would keep each other alive
            self._count(run, work.unit.turns)
        return [(run, step)]

    def _step_decoded(self, work: Work) -> list[Outcome]:
        if work.promised:
            raise _NotDecoded
        return self._step(work)

    def _step(self, work: Work) -> list[Outcome]:
        """Let every unfinished handler continue, in parallel, and wait for all of them."""
        if not work.runs:
            work.runs = [HandlerRun(each, self._number, work.total) for each in work.table.handlers]
        else:  # another lane may have started it, and the handlers may have changed since
            for run, bound in zip(work.runs, work.table.handlers, strict=True):
                run.bind(bound, self._number)
        now = self._clock()
        runs = [run for run in work.runs if not run.finished and run.retry_at <= now]
        steps: list[Step] = []
        try:
            if len(runs) > 1:
                steps = self._side_by_side(runs, work)
            elif runs:
                steps = [runs[0].step(work, self._failures, self._random)]
        finally:
            for run in runs:
                self._count(run, work.unit.turns)
        return list(zip(runs, steps, strict=True))

    def _side_by_side(self, runs: list[HandlerRun], work: Work) -> list[Step]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_MOST_HANDLERS, thread_name_prefix=f"{self.name}-handler")
        futures = [self._pool.submit(run.step, work, self._failures, self._random) for run in runs[1:]]
        try:
            first = runs[0].step(work, self._failures, self._random)
        finally:
            errors = [future.exception() for future in futures]
        for error in filter(None, errors):
            raise error
        return [first, *(future.result() for future in futures)]

    def _count(self, run: HandlerRun, turns: Turns) -> None:
        for seconds in run.seconds:
            self._called(run.name, seconds)
            turns.called(run.name, seconds)
        run.seconds.clear()

    def _not_done(self, work: Work, outcomes: list[Outcome]) -> None:
        unit, now = work.unit, self._clock()
        halted = next((run for run, step in outcomes if step is Step.HALT), None)
        failing = [run for run, step in outcomes if step is Step.RETRY]
        blocked = [run for run, step in outcomes if step is Step.BLOCKED]
        blocked.sort(key=lambda run: isinstance(run.error, Paused))
        under_way = [run for run, step in outcomes if step is Step.ASK_AGAIN]
        # A handler that waits for its limit would lose its turn if the batch was retried before.
        turn = math.inf if any(run.delay == math.inf for run in under_way) else 0.0
        for run in failing:
            run.retry_at = now + run.delay
        left = max(run.retry_at for run in work.runs if not run.finished) - now
        if halted is not None:
            unit.failed_batches += 1
            self._halt(work, origin_of(work, halted.done), f"{words_of(halted)} (handler {halted.name})")
        elif failing or left > 0:
            delay, reason = left, unit.error
            if failing:
                unit.failed_batches += 1
                delay, reason = max(run.delay for run in failing), words_of(failing[0])
                self._failures.retried(work, failing, delay, reason)
            self._give_back(work, max(delay, turn), reason, blocked=bool(blocked))
        elif blocked:
            reason = f"{words_of(blocked[0])} (handler {blocked[0].name})"
            paused, delay = isinstance(blocked[0].error, Paused), min(run.delay for run in blocked)
            self._give_back(work, max(delay, turn), reason, blocked=True, paused=paused)
        elif turn:
            if unit.paused:
                unit.mended()
            self._put_back(work, math.inf, unit.error)
        elif under_way:
            self._give_back(work, min(run.delay for run in under_way), None, blocked=False)
        else:  # called off, or continues at once
            self._put_back(work, 0.0, unit.error)

    def _give_back(
        self, work: Work, delay: float, reason: str | None, *, blocked: bool, paused: bool = False
    ) -> None:
        work.unit.blocked, work.unit.paused = blocked, paused
        self._put_back(work, delay, reason)

    def _put_back(self, work: Work, delay: float, reason: str | None) -> None:
        work.let_go()
        if delay == math.inf:
            work.forget_rows()
        self._lanes.give_back(self._number, work, delay=delay, error=reason)

    def _halt(self, work: Work, position: str, reason: str) -> None:
        self._failures.halted(work, position, reason)
        work.unit.blocked = False
        work.let_go()
        self._lanes.halt(self._number, work, reason)
