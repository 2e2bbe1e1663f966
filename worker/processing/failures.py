"""What happens after failures: log, count, skip, dead-letter, halt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from handlers import Batch
from handlers.loading.user_code import refuse_unrun
from handlers.logs import get_logger
from worker.attempts.backoff import describe, text_of
from worker.attempts.circuit import BoundHandler
from worker.attempts.retry_and_split import HandlerRun
from worker.attempts.steps import Caller, MustHalt, MustWait, ProcessDied, SetAside
from worker.attempts.table_pauses import Paused, TablePauses
from worker.column_rules.applying import skips
from worker.column_rules.judging import Unmet
from worker.column_rules.plan import ShownBehind
from worker.configuration.table_rules import OnFailure
from worker.dead_letters.writing import DeadLetters
from worker.formats.interface import Record, UndecodableRecord
from worker.lanes.lanes import Lanes
from worker.observing.metrics import Metrics
from worker.processing.slow_calls import RunningCalls, origin_of, record_of, record_origin
from worker.units.table import routed
from worker.units.work import Work

log = get_logger("processor")


@dataclass(frozen=True, kw_only=True)
class FailureRules:
    """What all processors share to deal with failures."""

    on_undecodable: OnFailure = "halt"
    dead_letters: DeadLetters | None = None
    """None without a dead-letter topic."""
    calls: RunningCalls = field(default_factory=RunningCalls)
    pauses: TablePauses | None = None


class Failures:
    """One processor's `Watch`. Its handlers' threads may call it at the same time."""

    def __init__(
        self, rules: FailureRules, lanes: Lanes, metrics: Metrics, clock: Callable[[], float]
    ) -> None:
        self._rules = rules
        self._lanes = lanes
        self._metrics = metrics
        self._clock = clock
        self._begin_call = rules.calls.begin
        self._end_call = rules.calls.end
        self._stopping = False

    def buries(self, fault: UndecodableRecord) -> bool:
        if isinstance(fault, Unmet):
            return fault.action == "dead_letter"
        return self._rules.on_undecodable == "dead_letter" and not isinstance(fault, ShownBehind)

    def call_off(self) -> None:
        """Start no further attempt."""
        self._stopping = True

    def transaction_cut(self, work: Work) -> None:
        self._metrics.count("binlane_transactions_cut_total", work.unit.table.label)
        log.warning(
            "transaction_cut",
            table=work.unit.table.label,
            position=record_origin(work, 0),
            hint="its transaction began in an earlier batch: raise batch.max_records or batch.max_bytes if "
            "it is larger than these, or batch.max_wait if its records come slowly",
        )

    # -- Watch

    def called_off(self, work: Work) -> bool:
        return self._stopping or work.withdrawn or not self._lanes.trusted

    def paused(self, work: Work, *handlers: str) -> Paused | None:
        pauses = self._rules.pauses
        if pauses is None or not pauses.given:
            return None
        return next(filter(None, (pauses.why(table, handlers) for table in work.tables())), None)

    def all_paused(self, work: Work) -> Paused | None:
        """Return why no handler may get a batch that is not under way."""
        pauses = self._rules.pauses
        if pauses is None or not pauses.given or (work.runs and work.unit.error is None):
            return None
        if any(run.accepted and not run.finished for run in work.runs):
            return None  # its result is still asked for
        runs = [run.name for run in work.runs if not run.finished]
        return self.paused(work, *(runs or [each.name for each in work.table.handlers]))

    def call(self, work: Work, run: Caller, batch: Batch) -> None:
        if run.limit.rule is None:
            self._call(work, run, batch)
        else:
            rows = 0 if run.accepted else len(batch.changes)
            with self._lanes.schedule.permits.call(work.unit, run.limit, rows):
                self._call(work, run, batch)

    def _call(self, work: Work, run: Caller, batch: Batch) -> None:
        begin = self._clock()
        self._begin_call(run.name, work, run.done, begin, batch.attempt)
        try:
            answer = work.call(run.handler, batch)
            if answer is not None:
                refuse_unrun(answer, run.handler)
        finally:
            self._end_call()
            run.seconds.append(self._clock() - begin)

    def failed(self, handler: str, error: BaseException) -> None:
        self._metrics.count("binlane_handler_failures_total", handler)
        log.debug("handler_failed", handler=handler, error=describe(error))

    def target_down(self, handler: str, error: BaseException) -> None:
        log.error(
            "target_down",
            handler=handler,
            error=text_of(error),
            hint="its tables wait; one batch at a time is tried, and no attempt is used up",
        )

    def held_up(self, work: Work, handler: str, error: BaseException) -> None:
        table = work.unit.table.label
        log.warning("table_waits", table=table, handler=handler, error=text_of(error))

    def target_up(self, handler: str, seconds: float) -> None:
        log.info("target_up", handler=handler, down_seconds=round(seconds, 1))
        self._lanes.unblock()

    def skipped(self, work: Work, handler: str, place: int, error: BaseException) -> None:
        _, order = work.ordered(place) or (0, None)
        self._metrics.count("binlane_records_skipped_total", "failed" if order is None else "unblocked")
        log.error(
            "change_skipped",
            table=work.unit.table.label,
            handler=handler,
            position=origin_of(work, place),
            error=describe(error),
            **({} if order is None else {"ordered_by": order.by}),
        )
        self._set_aside(order)

    def dead_letter(self, work: Work, handler: str, place: int, error: BaseException, attempts: int) -> None:
        record, before, index = record_of(work, place)
        _, order = work.ordered(place) or (0, None)
        what = {"handler": handler, "index": index, "error": describe(error), "attempts": attempts}
        self._send(work, record, before, order, **what)

    # -- of the processor itself

    def passes_over(self, message: Record, fault: UndecodableRecord) -> bool:
        """Whether an undecodable record counts as finished without handling."""
        if not skips(fault, self._rules.on_undecodable):
            return False
        if isinstance(fault, Unmet):
            log.warning("expectation_failed", table=fault.table, error=str(fault))
            self.count_unmet(fault)
            return True
        self._metrics.count("binlane_records_skipped_total", "undecodable")
        log.error(
            "record_skipped",
            position=f"{message.topic()}[{message.partition()}] offset {message.offset()}",
            error=str(fault),
        )
        return True

    def count_unmet(self, fault: UndecodableRecord) -> None:
        """Count the expectations that a record does not meet."""
        if isinstance(fault, Unmet):
            for rule in fault.rules:
                self._metrics.count("binlane_expectations_failed_total", fault.table, rule)

    def answered(self, bound: BoundHandler, turn: int) -> None:
        """A call of this handler succeeded. It was admitted on the circuit's `turn`."""
        seconds = bound.circuit.answered(turn)
        if seconds is not None:
            self.target_up(bound.name, seconds)

    def why_undecodable(self, work: Work, number: int) -> str:
        """Return what its format reports about the record. This was not stored when it was routed."""
        chunk, message = next(islice(work.messages(), number, None))
        try:
            routed(chunk.assignment.format, message)
        except UndecodableRecord as fault:
            return str(fault)
        return "its table is unknown"

    def bury_undecodable(self, work: Work, number: int, reason: str) -> None:
        """Write the work's record as a dead letter of all handlers, or skip it if that was ordered.

        Raises MustHalt and MustWait."""
        _, message = next(islice(work.messages(), number, None))
        order = work.orders.get(number)
        if order is not None and order.action == "skip":
            self._metrics.count("binlane_records_skipped_total", "unblocked")
            position = record_origin(work, number)
            log.error("record_skipped", position=position, error=reason, ordered_by=order.by)
            self._set_aside(order)
            return
        what = {"handler": None, "index": None, "error": reason, "attempts": 0}
        self._send(work, message, number, order, **what)

    def retried(self, work: Work, failing: list[HandlerRun], delay: float, reason: str) -> None:
        table, error = work.unit.table.label, failing[0].error
        attempt = max(run.attempt for run in failing) - 1
        self._metrics.count("binlane_retries_total", table)
        # Errors of built-in handlers say where and why. For other errors, log the traceback once.
        is_told = type(error).__module__.partition(".")[0] == "handlers" or isinstance(error, ProcessDied)
        log.warning(
            "batch_failed",
            table=table,
            handlers=[run.name for run in failing],
            attempt=attempt,
            error=reason,
            retry_in_seconds=round(delay, 3),
            exc_info=error if attempt == 1 and not is_told else None,
        )

    def halted(self, work: Work, position: str, reason: str) -> None:
        log.error(
            "table_halted",
            table=work.unit.table.label,
            position=position,
            error=reason,
            hint="its later changes wait; fix the cause and restart, change its rule (on_failure: skip), or "
            "set this record aside: binlane unblock",
        )

    def _set_aside(self, order: SetAside | None, letter: str | None = None) -> None:
        if order is not None and order.done(letter):
            self._metrics.count("binlane_unblocked_records_total", order.action)

    def _send(self, work: Work, record: Record, before: int, order: SetAside | None, **what: Any) -> None:
        """Write a dead letter. `before`: how many of the work's records precede this one.

        Raises MustHalt and MustWait."""
        if self._rules.dead_letters is None:
            raise MustHalt("a dead letter is required, but dead_letter.topic is not set")
        letter = self._rules.dead_letters.send(
            record,
            table=work.unit.table.label,
            before=max(0, before - work.finished),
            ordered_by=None if order is None else order.by,
            **what,
        )
        self._set_aside(order, letter)


def words_of(run: HandlerRun) -> str:
    if run.error is None:
        return ""
    return text_of(run.error) if isinstance(run.error, MustHalt | MustWait) else describe(run.error)
