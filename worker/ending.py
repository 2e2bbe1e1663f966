"""That a stop ends: calls with a deadline, and what ends a process that does not end by itself."""

from __future__ import annotations

import faulthandler
import math
import os
import select
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = [
    "COMMIT_SECONDS",
    "KAFKA_SECONDS",
    "LANES_SECONDS",
    "Bounded",
    "GivenUp",
    "LastResort",
    "grace_seconds",
    "say",
    "stop_seconds",
]

Answer = TypeVar("Answer")

LANES_SECONDS = 5.0
"""Beyond `shutdown_timeout`, to stop the lanes."""
COMMIT_SECONDS = 15.0
"""For the last commit: Kafka has 10 s, and so has a commit that was under way."""
KAFKA_SECONDS = 10.0
"""That a commit or a look-up may take, and leaving the group beside its last rebalance."""
_REST_SECONDS = 10.0
_SAY_SECONDS = 2.0
_HARD_SECONDS = 10.0
_LOOK_SECONDS = 0.05
_PIECE = 4096  # a pipe that can be written to takes so much at once


class GivenUp(Exception):
    """The worker stops, and does not wait for a call that is not done."""


class Bounded(Generic[Answer]):
    """A call in a thread of its own, which is waited for so long and no longer."""

    def __init__(self, name: str, do: Callable[[], Answer]) -> None:
        self._do = do
        self._answers: list[Answer] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def within(self, seconds: float) -> Answer:
        """What it returns. Raises what it raises; TimeoutError, with the place where it is, when it is late:
        then it goes on, and nobody waits for it."""
        self._thread.join(max(seconds, 0.0))
        if self._thread.is_alive():
            raise TimeoutError(f"not done within {seconds:.0f} s; it is at {self._place()}")
        return self._answer()

    def unless(self, stopped: Callable[[], bool], within: float = math.inf) -> Answer:
        """What it returns. Raises what it raises; GivenUp, with the place where it is, once `stopped` says
        so, and TimeoutError when it is late: then it goes on, and nobody waits for it."""
        end = time.monotonic() + within
        while self._thread.is_alive():
            if stopped():
                raise GivenUp(f"the worker stops; it is at {self._place()}")
            if time.monotonic() >= end:
                raise TimeoutError(f"not done within {within:.0f} s; it is at {self._place()}")
            self._thread.join(_LOOK_SECONDS)
        return self._answer()

    def _answer(self) -> Answer:
        if self._error is not None:
            raise self._error
        return self._answers[0]

    def _run(self) -> None:
        try:
            self._answers.append(self._do())
        except BaseException as error:  # raised again in the thread that waits
            self._error = error

    def _place(self) -> str:
        frame = sys._current_frames().get(self._thread.ident or 0)
        if frame is None:
            return "its end"
        inner = traceback.extract_stack(frame)[-3:]
        return " > ".join(f"{each.filename}:{each.lineno} {each.name}" for each in inner)


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
