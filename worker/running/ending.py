"""That a stop ends: how long its parts may take, and what ends a process that does not end by itself."""

from __future__ import annotations

import faulthandler
import os
import select
import threading
import time

LANES_SECONDS = 5.0
"""Beyond `shutdown_timeout`, to stop the lanes."""
COMMIT_SECONDS = 15.0
"""For the last commit: Kafka has 10 s, and so has a commit that was under way."""
KAFKA_SECONDS = 10.0
"""That a commit or a look-up may take, and leaving the group beside its last rebalance."""
_REST_SECONDS = 10.0
_SAY_SECONDS = 2.0
_HARD_SECONDS = 10.0
_PIECE = 4096  # a pipe that can be written to takes so much at once


def stop_seconds(*, shutdown_timeout: float, revoke_timeout: float, closing: float) -> float:
    """The longest that a worker's stop may take, when each part of it takes all its time.

    The lanes, the last commit, leaving the group, the handlers' `close`, the web pages.
    """
    leaving = KAFKA_SECONDS + revoke_timeout
    return shutdown_timeout + LANES_SECONDS + COMMIT_SECONDS + leaving + closing + _REST_SECONDS


def grace_seconds(stop: float) -> float:
    """How long whoever stops a worker has to wait before they kill it: whatever hangs, it has ended itself by
    then. `stop`: as `stop_seconds` tells."""
    return stop + _HARD_SECONDS


class LastResort:
    """Ends the process, whatever keeps it, once it has been given its time."""

    def __init__(self, code: int) -> None:
        self.code = code
        """The exit code."""
        self._seconds: float | None = None
        self._armed = threading.Event()
        # Begun now: when it is needed, there may be no means for another thread.
        threading.Thread(target=self._run, name="last-resort", daemon=True).start()

    def arm(self, seconds: float) -> None:
        """Unless the process has ended in so many seconds, write the stacks of all threads to standard error
        and end it with `code`. Any thread; once it is armed, nothing changes that.

        It is a thread that does so, which also runs while Python waits for other threads at its end. Where no
        thread can run any more (C code that keeps the interpreter's lock, or hangs in the very end), Python's
        own watchdog follows 10 s later; its exit code is always 1.
        """
        if self._seconds is None:
            self._seconds = seconds
            faulthandler.dump_traceback_later(seconds + _HARD_SECONDS, exit=True, file=2)
            self._armed.set()

    def _run(self) -> None:
        self._armed.wait()
        seconds = self._seconds or 0.0
        time.sleep(seconds)
        try:
            names: dict[int, threading.Thread] = vars(threading)["_active"]  # enumerate() asks for a lock
            threads = [f"{each.name} = {number:#018x}" for number, each in names.copy().items()]
            head = (
                f"not ended {seconds:.0f} s after it was told to: ending now, with exit code {self.code}; "
                f"what still runs (threads: {', '.join(threads)}):\n"
            )
            # Not to standard error itself: it may be a pipe that is full, and that nobody reads any more.
            stacks = os.memfd_create("stacks")
            faulthandler.dump_traceback(stacks, all_threads=True)
            say(head.encode() + os.pread(stacks, os.fstat(stacks).st_size, 0))
        finally:
            os._exit(self.code)


def say(text: bytes) -> None:
    """Write to standard error, whatever holds the log's lock, and give up where nobody reads it for 2 s."""
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    end = time.monotonic() + _SAY_SECONDS
    while text and poll.poll(max(0.0, end - time.monotonic()) * 1000):
        try:
            text = text[os.write(2, text[:_PIECE]) :]
        except OSError:  # nobody will ever read it
            return
