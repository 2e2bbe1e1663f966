"""The process's signals, taken by a thread: at any moment, and by no handler."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping
from types import FrameType

from handlers.logs import get_logger
from worker.attempts.backoff import describe

log = get_logger("signals")


def take_signals(takers: Mapping[signal.Signals, Callable[[], None]]) -> None:
    """From now on, to the end of the process, call a signal's taker in the thread `signals`. To be called
    once, in the main thread.

    A handler of Python's runs in the main thread, between any two of its steps: also where that holds the
    lock that the handler would need, of an Event or of the log. And it does not run at all while the main
    thread is kept in a call. Here Python itself writes the signal's number to a pipe, whatever the main
    thread does, and the thread that reads it may do what any other thread may.

    A process that is forked off has the usual signals again: its own are not the worker's.
    """
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
            if number in takers:  # others may have handlers of their own
                try:
                    takers[number]()
                except Exception as error:  # the next signal is to be taken all the same
                    log.error("signal_failed", signal=number, error=describe(error), exc_info=error)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Only a signal with a handler is told through the pipe."""


def _usual_in_forked(takers: Mapping[signal.Signals, Callable[[], None]]) -> None:
    own = threading.local()  # the mask of each thread that forks

    def before() -> None:
        # Until the child has its usual signals, what is sent to it waits: it still writes to the same pipe.
        own.mask = signal.pthread_sigmask(signal.SIG_BLOCK, takers)

    def after_in_parent() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, own.mask)

    def after_in_child() -> None:
        signal.set_wakeup_fd(-1)
        for number in takers:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, own.mask)

    os.register_at_fork(before=before, after_in_parent=after_in_parent, after_in_child=after_in_child)
