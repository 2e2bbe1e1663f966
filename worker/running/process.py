"""The worker's process: its signals, and when Python collects cyclic garbage. The time limits of a stop, and
the end of a process that does not end by itself."""

from __future__ import annotations

import faulthandler
import gc
import os
import select
import signal
import threading
import time
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


LANES_SECONDS = 5.0
"""Time in addition to `shutdown_timeout`, to stop the lanes."""
COMMIT_SECONDS = 15.0
"""For the last commit. Kafka has 10 s, and a commit that was already in progress has as long."""
KAFKA_SECONDS = 10.0
"""The limit of a commit or a look-up, and of leaving the group beyond its last rebalance."""
_REST_SECONDS = 10.0
_SAY_SECONDS = 2.0
_HARD_SECONDS = 10.0
_PIECE = 4096  # the size that a writable pipe accepts at once


def stop_seconds(*, shutdown_timeout: float, revoke_timeout: float, closing: float) -> float:
    """Return the longest time of a worker's stop, if each step takes all its time.

    The steps: the lanes, the last commit, leaving the group, the handlers' `close`, the web pages."""
    leaving = KAFKA_SECONDS + revoke_timeout
    return shutdown_timeout + LANES_SECONDS + COMMIT_SECONDS + leaving + closing + _REST_SECONDS


def grace_seconds(stop: float) -> float:
    """Return how long to wait before killing a stopping worker: by then, it has ended itself even if
    something hangs. `stop`: the result of `stop_seconds`."""
    return stop + _HARD_SECONDS


class LastResort:
    """Ends the process when its time is over, whatever hangs."""

    def __init__(self, code: int) -> None:
        self._code = code
        self._seconds: float | None = None
        self._armed = threading.Event()
        # Started now: when it is needed, there may be no resources for another thread.
        threading.Thread(target=self._run, name="last-resort", daemon=True).start()

    def arm(self, seconds: float) -> None:
        """If the process has not ended after `seconds`, write the stacks of all threads to standard error and
        end it with its exit code. Any thread. Later calls have no effect.

        A thread does this, which also runs while Python waits for other threads at its end. If no thread can
        run (C code keeps the interpreter's lock, or hangs in the final steps), Python's own watchdog follows
        10 s later. Its exit code is always 1."""
        if self._seconds is None:
            self._seconds = seconds
            faulthandler.dump_traceback_later(seconds + _HARD_SECONDS, exit=True, file=2)
            self._armed.set()

    def exit_with(self, code: int) -> None:
        self._code = code

    def _run(self) -> None:
        self._armed.wait()
        seconds = self._seconds or 0.0
        time.sleep(seconds)
        try:
            names: dict[int, threading.Thread] = vars(threading)["_active"]  # enumerate() would need a lock
            threads = [f"{each.name} = {number:#018x}" for number, each in names.copy().items()]
            head = (
                f"not ended {seconds:.0f} s after the order to stop: ending now, exit code {self._code}; "
                f"still running (threads: {', '.join(threads)}):\n"
            )
            # Not directly to standard error, which may be a full pipe that nobody reads any more.
            stacks = os.memfd_create("stacks")
            faulthandler.dump_traceback(stacks, all_threads=True)
            say(head.encode() + os.pread(stacks, os.fstat(stacks).st_size, 0))
        finally:
            os._exit(self._code)


def say(text: bytes) -> None:
    """Write to standard error without the log's lock. Gives up after 2 s if nobody reads it."""
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    end = time.monotonic() + _SAY_SECONDS
    while text and poll.poll(max(0.0, end - time.monotonic()) * 1000):
        try:
            text = text[os.write(2, text[:_PIECE]) :]
        except OSError:  # nobody will ever read it
            return
