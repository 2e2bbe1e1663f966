"""The place of a child process: it is started again if it ends, and the batch to blame is found."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakKeyDictionary

from handlers.logs import get_logger
from worker.attempts.steps import ProcessAway, ProcessDied
from worker.processes.process import Process

log = get_logger("processes")

_SOON = 0.1
"""Seconds until a batch asks again for a process that is being started. Its start wakes it earlier."""
_ASKED_SECONDS = 1.0
"""Others wait if a suspect has asked as recently: it runs when the process is idle."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 5.0
_CALM_SECONDS = 60.0
"""A process that lived as long is started again without a pause."""


class Slot:
    """Any thread. If a process ends while it runs several batches, none of them is blamed. Each runs alone in
    the next process, until a call of its handlers returns."""

    def __init__(
        self,
        number: int,
        make: Callable[[Callable[[Process], None]], Process],
        *,
        ready: Callable[[], object],
        ended: Callable[[], object],
    ) -> None:
        """`make(ended)`: start a process. `ready`: called when it is there again, `ended`: when it is not."""
        self.number = number
        self._make = make
        self._ready = ready
        self._tell_ended = ended
        self._changed = threading.Condition()  # guards all below
        self._process: Process | None = None
        self._calls: dict[object, tuple[str, Process, bool]] = {}
        self._suspects: set[str] = set()
        self._asked: dict[str, float] = {}  # suspect -> when it last asked to run
        # Ended process -> whether it ran a single batch, which is then to blame.
        self._ended: WeakKeyDictionary[Process, bool] = WeakKeyDictionary()
        # Those of the thread that starts it again.
        self._pauses = 0
        self._started = 0.0
        self._closed = False

    def start(self) -> None:
        """Start the first process, if that is not done yet. Raises OSError."""
        if not self._started and not self._put(self._make(self._gone)):
            threading.Thread(target=self._pause, name="process-again", daemon=True).start()

    @property
    def process(self) -> Process:
        """Raises ProcessAway while it is being started."""
        process = self._process
        if process is None:
            raise ProcessAway(f"lane process {self.number} is being started", _SOON)
        return process

    @property
    def present(self) -> Process | None:
        return self._process

    def ask(self, table: str, process: Process, name: str, *rest: Any, **more: Any) -> Any:
        """Ask `process` to do something for a table's batch, as `Process.ask`. Raises what the child raises,
        ProcessAway and ProcessDied."""
        with self.entered(table, process):
            try:
                answer = process.ask(name, *rest, **more)
            except (EOFError, OSError):  # of the connection: errors of the child are none of these
                raise self._died(process) from None
        return answer

    @contextmanager
    def calling(self, table: str) -> Iterator[None]:
        """A call of the table's handlers. If it returns, or raises an error of its own, it is no suspect."""
        try:
            yield
        except (ProcessDied, ProcessAway):
            raise
        except Exception:
            self._survived(table)
            raise
        self._survived(table)

    def _survived(self, table: str) -> None:
        if self._suspects:
            with self._changed:
                self._suspects.discard(table)
                self._asked.pop(table, None)

    def retire(self) -> None:
        """Start another process for what follows. The present one ends after its running batches."""
        with self._changed:
            old, self._process = self._process, None
        if old is not None:
            threading.Thread(target=self._again, name="process-again", daemon=True).start()
            threading.Thread(target=self._leave, args=(old,), name="process-leaves", daemon=True).start()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            process, self._process = self._process, None
            self._changed.notify_all()
        if process is not None:
            process.end()

    @contextmanager
    def entered(self, table: str, process: Process, *, opens: bool = False) -> Iterator[None]:
        """If the process ends meanwhile, this may be to blame. Raises ProcessAway.

        `opens`: it opens a handler, which may take long. Others wait only if that has ended a process before.
        """
        call = object()
        with self._changed:
            if self._process is not process:
                raise ProcessAway(f"lane process {self.number} is being started", _SOON)
            # Not waited for here: a call may only start while the worker still has its partitions.
            if self._suspects and not self._may_enter(table, opens):
                raise ProcessAway(f"lane process {self.number} is handling a batch alone", _SOON)
            self._calls[call] = table, process, opens
        try:
            yield
        finally:
            with self._changed:
                del self._calls[call]
                self._changed.notify_all()

    def _may_enter(self, table: str, opens: bool) -> bool:
        now, calls = time.monotonic(), self._calls.values()
        suspected = any(one in self._suspects for one, _, _ in calls)
        if table in self._suspects:
            busy = suspected or not all(beside for _, _, beside in calls)
            self._asked[table] = now if busy else 0.0  # it asks no more
            return not busy
        asked = any(now - self._asked.get(one, 0.0) < _ASKED_SECONDS for one in self._suspects)
        return opens or not (asked or suspected)

    def _died(self, process: Process) -> Exception:
        self._gone(process)
        reason = f"lane process {self.number} (pid {process.pid}) ended: {process.how_ended}"
        if self._ended.get(process, False):
            return ProcessDied(reason)
        return ProcessAway(f"{reason}; it ran several batches, and each is tried again alone", _SOON)

    def _gone(self, process: Process) -> None:
        """It has ended. Both a caller and its listener notice that."""
        with self._changed:
            if process in self._ended or self._closed:
                return
            running = [table for table, own, _ in self._calls.values() if own is process]
            self._ended[process] = len(running) == 1
            self._suspects.update(running)
            was_present = self._process is process
            if was_present:
                self._process = None
            self._changed.notify_all()
        log.error(
            "lane_process_ended",
            process=self.number,
            pid=process.pid,
            how=process.how_ended,
            tables=running or None,
            hint="its batches are tried again in another process; one that ends it again is split, as "
            "after any failure",
        )
        self._tell_ended()
        if was_present:
            threading.Thread(target=self._pause, name="process-again", daemon=True).start()

    def _pause(self) -> None:
        lived = time.monotonic() - self._started
        self._pauses = 0 if lived >= _CALM_SECONDS else self._pauses + 1
        time.sleep(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (self._pauses - 1)) if self._pauses > 1 else 0.0)
        self._again()

    def _again(self) -> None:
        while not self._closed:
            try:
                made = self._make(self._gone)
            except Exception as error:
                log.error("lane_process_not_started", process=self.number, error=str(error))
                time.sleep(_LONGEST_PAUSE)
                continue
            if self._put(made):
                log.info("lane_process_started", process=self.number, pid=made.pid)
                self._ready()
                return
            if self._closed:
                made.end()
            else:
                time.sleep(_LONGEST_PAUSE)

    def _put(self, made: Process) -> bool:
        """Return whether it is the present one now: it may have ended already."""
        with self._changed:
            self._started = time.monotonic()
            lives = not self._closed and made not in self._ended
            if lives:
                self._process = made
        return lives

    def _leave(self, old: Process) -> None:
        with self._changed:
            self._changed.wait_for(lambda: all(own is not old for _, own, _ in self._calls.values()))
        with suppress(Exception):  # it may have ended meanwhile
            for number in list(old.knows.handlers):
                old.ask("close", number)
        with self._changed:
            self._ended.setdefault(old, False)  # as wanted
        old.end()
