"""The worker's process: its signals, and when Python collects cyclic garbage."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable, Mapping
from types import FrameType

from handlers.logs import get_logger
from worker.attempts.backoff import describe

log = get_logger("signals")

_LOOK_SECONDS = 60.0


def take_signals(takers: Mapping[signal.Signals, Callable[[], None]]) -> None:
    """From now on, to the end of the process, call a signal's taker in the thread `signals`. Call this once,
    in the main thread.

    A Python signal handler runs in the main thread, between any two steps. The main thread may then hold a
    lock that the handler needs, of an Event or of the log. While the main thread is blocked in a call, the
    handler does not run at all. Here, Python itself writes the signal's number to a pipe, whatever the main
    thread does. The thread that reads the pipe may do what any thread may.

    A forked process gets the default signals again, because its signals are not the worker's."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    threading.Thread(target=_take, args=(read, dict(takers)), name="signals", daemon=True).start()
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in takers:
        signal.signal(number, _nothing)
    _usual_in_forked(takers)


def _take(read: int, takers: Mapping[int, Callable[[], None]]) -> None:
    while numbers := os.read(read, 512):
        for number in numbers:
            if number in takers:  # others may have their own handlers
                try:
                    takers[number]()
                except Exception as error:  # the next signal must still be handled
                    log.error("signal_failed", signal=number, error=describe(error), exc_info=error)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Python reports only signals with a handler through the pipe."""


def _usual_in_forked(takers: Mapping[signal.Signals, Callable[[], None]]) -> None:
    own = threading.local()  # the mask of each thread that forks

    def before() -> None:
        # Signals to the child wait until it has its defaults, because it still writes to the same pipe.
        own.mask = signal.pthread_sigmask(signal.SIG_BLOCK, takers)

    def after_in_parent() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, own.mask)

    def after_in_child() -> None:
        signal.set_wakeup_fd(-1)
        for number in takers:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, own.mask)

    os.register_at_fork(before=before, after_in_parent=after_in_parent, after_in_child=after_in_child)


class Garbage:
    """Millions of records pass through, and hardly any is in a cycle, so Python's usual frequent collections
    cost more than they find. But revoked partitions are in cycles. Their data (flags in mapped files, each
    with its handle) stays until a full collection."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due = clock()

    def settle(self) -> None:
        """Treat all present objects as permanent: they need not be examined again."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        self._due = self._clock() + _LOOK_SECONDS

    def look(self) -> None:
        """Collect everything once a minute: 0.1 ms for a thousand objects. Call this often."""
        if self._clock() >= self._due:
            self._due = self._clock() + _LOOK_SECONDS
            gc.collect()
