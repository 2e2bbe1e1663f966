"""Handler calls in progress: where their changes come from, and reports of slow ones."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from handlers import hanging_calls
from handlers.logs import get_logger
from worker.formats.interface import Record
from worker.observing.logs import context
from worker.processes.process import begin_no_more, cancel_beyond, stack_beyond
from worker.units.work import Work

log = get_logger("slow_calls")


@dataclass(slots=True, eq=False)
class Call:
    """One call of a handler, which runs in the thread that made it."""

    handler: str
    work: Work
    first: int
    """The index of its first change in the work."""
    since: float
    attempt: int
    worker: str
    reported: int = 0
    """The number of reports. The watcher's own."""

    def fields(self) -> dict[str, Any]:
        """Return what each log line of the call has."""
        work = self.work
        found = {
            "worker": self.worker,
            "table": work.unit.table.label,
            "lane": work.unit.lane,
            "handler": self.handler,
            "attempt": self.attempt,
        }
        if (trace := getattr(work, "trace", None)) is not None:
            found["trace_id"] = f"{trace.context.trace_id:032x}"
        return found


class RunningCalls:
    """The calls in progress, one per thread. Each thread starts and ends its own. Any thread may read them.

    No lock: a dict is changed and copied in one step each. `worker`: its name, for log lines."""

    def __init__(self, worker: str = "") -> None:
        self._worker = worker
        self._of_thread: dict[int, Call] = {}

    def begin(self, handler: str, work: Work, first: int, now: float, attempt: int) -> None:
        call = Call(handler, work, first, now, attempt, self._worker)
        self._of_thread[threading.get_ident()] = call
        context.set(call.fields)

    def end(self) -> None:
        self._of_thread.pop(threading.get_ident(), None)
        context.set(dict)

    def current(self) -> dict[int, Call]:
        """Return thread -> its call."""
        return self._of_thread.copy()

    def cancel(self, reason: str, work: Work | None = None) -> bool:
        """Cancel the coroutines that have a batch, or only `work`. Returns False if there are none."""
        threads = [thread for thread, call in self.current().items() if work in (None, call.work)]
        return hanging_calls.cancel(threads, reason) | cancel_beyond(threads, reason)

    def let_go(self) -> None:
        """Let withdrawn batches begin no call in a child process. What runs there continues."""
        begin_no_more(thread for thread, call in self.current().items() if call.work.withdrawn)

    def stack(self, thread: int, call: Call) -> str | None:
        """Return the thread's stack, the innermost call last. None: the call has ended."""
        stack = stack_of(thread)
        return stack if self._of_thread.get(thread) is call else None


@dataclass(frozen=True)
class SlowCalls:
    """Reports each call that runs longer than its table's `slow_after`, and again at every doubling."""

    calls: RunningCalls
    clock: Callable[[], float]

    def look(self) -> None:
        """Report calls that have become slow since the last look. One thread."""
        now = self.clock()
        for thread, call in self.calls.current().items():
            seconds = now - call.since
            if seconds < call.work.unit.table.rule.slow_after * 2**call.reported:
                continue
            stack = self.calls.stack(thread, call)
            if stack is None:
                continue
            while seconds >= call.work.unit.table.rule.slow_after * 2**call.reported:
                call.reported += 1
            log.warning(
                "handler_slow",
                handler=call.handler,
                table=call.work.unit.table.label,
                position=origin_of(call.work, call.first),
                seconds=round(seconds, 1),
                stack_of_handler=stack,
            )


def stack_of(thread: int) -> str:
    """Return the thread's stack, the innermost call last. Empty: it has ended."""
    return stack + stack_beyond(thread) if (stack := hanging_calls.stack_of(thread)) else ""


def origin_of(work: Work, place: int) -> str:
    """Format the position of a decoded batch's change as `topic[partition] offset n row i`."""
    changes = work.changes or ()
    if place == 0 and not changes:
        return record_origin(work, 0)
    if place >= len(changes):
        return "its end"
    change = changes[place]
    return f"{change.topic}[{change.partition}] offset {change.offset} row {change.index}"


def record_origin(work: Work, number: int) -> str:
    """Format the position of the work's record as `topic[partition] offset n`."""
    for count, (chunk, offset) in enumerate(work.offsets()):
        if count >= number:
            return chunk.assignment.record_at(offset)
    return "its end"


def record_of(work: Work, place: int) -> tuple[Record, int, int]:
    """Return the record of the change at `place` of a decoded batch, the number of records before it, and the
    change's row."""
    number = bisect_right(work.ends, place)  # not by offset: pieces of one record share it
    _, message = next(islice(work.messages(), number, None))
    return message, number, (work.changes or ())[place].index
