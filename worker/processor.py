"""Processors: one thread a lane that decodes batches and runs their table's handlers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from handlers import StopWorker
from worker.execution import HandlerRun, Step, describe
from worker.formats.interface import Record, UndecodableRecord
from worker.histogram import HandlerTimes
from worker.lanes import Lanes
from worker.logs import get_logger
from worker.metrics import Metrics
from worker.work import Work

__all__ = ["Processor"]

log = get_logger("processor")

_MOST_HANDLERS = 64  # of one table at once; a thread is made only when it is needed


class Processor(threading.Thread):
    """Takes batches from the lanes until they are stopped.

    `fail` is told the error that must stop the worker: a handler's StopWorker, or a fault of this thread
    itself.
    """

    def __init__(
        self,
        number: int,
        lanes: Lanes,
        metrics: Metrics,
        *,
        skip_undecodable: bool,
        clock: Callable[[], float],
        random: Callable[[], float],
        fail: Callable[[BaseException], None],
    ) -> None:
        super().__init__(name=f"processor-{number}", daemon=True)
        self._number = number
        self._lanes = lanes
        self._metrics = metrics
        self._times: HandlerTimes = metrics.handler_times(number)
        self._skip_undecodable = skip_undecodable
        self._clock = clock
        self._random = random
        self._fail = fail
        self._pool: ThreadPoolExecutor | None = None
        self._stopping = False

    def call_off(self) -> None:
        """Begin no further attempt; a handler that is running goes on to its end."""
        self._stopping = True

    def run(self) -> None:
        finished: Work | None = None
        try:
            while (work := self._lanes.take(self._number, finished)) is not None:
                finished = self._work(work)
        except BaseException as error:
            self._fail(error)
        finally:
            if self._pool is not None:
                self._pool.shutdown(wait=False)

    def _work(self, work: Work) -> Work | None:
        """The work if it is done; None when it was given back, or its unit halted."""
        if self.called_off(work):
            self._lanes.give_back(self._number, work, delay=0.0, error=work.unit.error)
            return None
        table = work.unit.table
        if not work.runs:
            prepared = self._decoded(work) if table.decodes else work
            if prepared is None:
                return None
            work = prepared
        try:
            steps = self._try_alone(work) if table.sole and not work.runs else self._step(work)
        except StopWorker as error:
            self._lanes.give_back(self._number, work, delay=0.0, error=describe(error))
            raise
        if steps and Step.RETRY in steps and work.changes is None:
            runs = work.runs
            decoded = self._decoded(work)
            if decoded is None:
                return None
            work = decoded
            work.runs = [run.decoded(work.total) for run in runs]
        if steps is None or all(run.finished for run in work.runs):
            work.unit.finished_records += work.finish_records(work.records)
            return work
        work.unit.finished_records += work.finish_changes(min(run.done for run in work.runs))
        self._not_done(work, steps)
        return None

    def _decoded(self, work: Work) -> Work | None:
        """The batch, decoded up to its first bad record. None: the unit halted at that."""
        fault = work.decode(self._undecodable)
        if fault is not None:
            place, reason = fault
            if place == 0:
                self._halt(work, _place(work, 0), f"undecodable record: {reason}")
                return None
            # What comes before the bad record is handled first; the rest halts when its turn comes.
            work = self._lanes.shorten(self._number, work, place)
            work.decode(self._undecodable)
        return work

    def _try_alone(self, work: Work) -> list[Step] | None:
        """The first call of a table's only handler, at the least cost. None: it is done."""
        if not work.total:
            return None
        bound = work.unit.table.handlers[0]
        handler = bound.of(self._number)
        begin = self._clock()
        try:
            handler.handle(work.batch(0, work.total, 1))
        except BaseException as raised:
            run = HandlerRun(bound.name, handler, work.total)
            work.runs = [run]
            return [run.step(work, self, self._random, raised)]
        finally:
            self._times.observe(bound.name, self._clock() - begin)
        return None

    def _step(self, work: Work) -> list[Step]:
        """Let every handler that is not through go on, in parallel; all are waited for."""
        if not work.runs:
            handlers = work.unit.table.handlers
            work.runs = [HandlerRun(each.name, each.of(self._number), work.total) for each in handlers]
        runs = [run for run in work.runs if not run.finished]
        if len(runs) == 1:
            return [self._timed(runs[0], work, self._times)]
        if not runs:
            return []
        pool = self._pool
        if pool is None:
            name = f"{self.name}-handler"
            pool = self._pool = ThreadPoolExecutor(max_workers=_MOST_HANDLERS, thread_name_prefix=name)
        # Handler times belong to this thread, so the others' are measured apart and added here.
        others = [HandlerTimes() for _ in runs[1:]]
        futures = [
            pool.submit(self._timed, run, work, times) for run, times in zip(runs[1:], others, strict=True)
        ]
        try:
            steps = [self._timed(runs[0], work, self._times)]
        finally:
            errors = [future.exception() for future in futures]
            for times in others:
                self._times.add(times)
        for error in errors:
            if error is not None:
                raise error
        return steps + [future.result() for future in futures]

    def _timed(self, run: HandlerRun, work: Work, times: HandlerTimes) -> Step:
        begin = self._clock()
        try:
            return run.step(work, self, self._random)
        finally:
            times.observe(run.name, self._clock() - begin)

    def _not_done(self, work: Work, steps: list[Step]) -> None:
        failing = [run for run in work.runs if run.error is not None and not run.finished]
        if not failing or (Step.HALT not in steps and Step.RETRY not in steps):  # called off
            self._lanes.give_back(self._number, work, delay=0.0, error=work.unit.error)
            return
        work.unit.failed_batches += 1
        if Step.HALT in steps:
            run = next(run for run in failing if run.splitting)
            self._halt(work, _change_place(work, run.done), f"{_words(run)} (handler {run.name})")
            return
        delay = max(run.delay for run in failing)
        table, reason = work.unit.table.label, _words(failing[0])
        self._metrics.retry(table)
        log.warning(
            "batch_failed",
            table=table,
            handlers=[run.name for run in failing],
            attempt=max(run.attempt for run in failing) - 1,
            error=reason,
            retry_in_seconds=round(delay, 3),
            exc_info=failing[0].error,
        )
        self._lanes.give_back(self._number, work, delay=delay, error=reason)

    def _halt(self, work: Work, position: str, reason: str) -> None:
        log.error(
            "table_halted",
            table=work.unit.table.label,
            position=position,
            error=reason,
            hint="its later changes wait; mend the cause and restart, or set on_failure: skip",
        )
        self._lanes.halt(self._number, work, reason)

    def called_off(self, work: Work) -> bool:
        return self._stopping or work.withdrawn

    def failed(self, handler: str, error: BaseException) -> None:
        self._metrics.handler_failure(handler)
        log.debug("handler_failed", handler=handler, error=describe(error))

    def skipped(self, work: Work, handler: str, place: int, error: BaseException) -> None:
        self._metrics.skipped("failed")
        log.error(
            "change_skipped",
            table=work.unit.table.label,
            handler=handler,
            position=_change_place(work, place),
            error=describe(error),
        )

    def _undecodable(self, message: Record, fault: UndecodableRecord) -> bool:
        if self._skip_undecodable:
            self._metrics.skipped("undecodable")
            log.error(
                "record_skipped",
                position=f"{message.topic()}[{message.partition()}] offset {message.offset()}",
                error=str(fault),
            )
        return self._skip_undecodable


def _words(run: HandlerRun) -> str:
    return describe(run.error) if run.error is not None else ""


def _place(work: Work, record: int) -> str:
    """`topic[partition] offset n` of the work's record."""
    for place, (chunk, message) in enumerate(work.messages()):
        if place >= record:
            return f"{chunk.assignment.partition} offset {message.offset()}"
    return "its end"


def _change_place(work: Work, place: int) -> str:
    if work.changes is None:
        return _place(work, place)
    change = work.changes[place]
    return f"{change.topic}[{change.partition}] offset {change.offset} row {change.index}"
