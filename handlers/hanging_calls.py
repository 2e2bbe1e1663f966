"""Threads that may be given up: calls that hang, each awaited for a limited time, and background work.

Also callbacks for the end of the process, even if it calls `os._exit`."""

from __future__ import annotations

import atexit
import math
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from handlers.logs import get_logger

Answer = TypeVar("Answer")

_LOOK_SECONDS = 0.05


beyond: dict[int, Any] = {}
"""Thread -> the call (`handlers.coroutines`) for which it waits, on the event loop."""


def cancel(threads: Iterable[int], reason: str) -> bool:
    """Cancel the coroutines that have batches of these threads. Returns False if there are none."""
    return True in [waits.cancel(reason) for waits in filter(None, map(beyond.get, threads))]


def stack_of(thread: int) -> str:
    """Return the thread's stack, the innermost call last. Empty: it has ended."""
    frame, waits = sys._current_frames().get(thread), beyond.get(thread)
    if frame is None:
        return ""
    return "".join(traceback.format_stack(frame)) + (waits.stack() if waits is not None else "")


class GivenUp(Exception):
    """The worker is stopping and does not wait for an unfinished call."""


class Bounded(Generic[Answer]):
    """A call in its own thread. The caller waits for a limited time."""

    def __init__(self, name: str, do: Callable[[], Answer]) -> None:
        self._do = do
        self._answers: list[Answer] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def within(self, seconds: float) -> Answer:
        """Return the result, or raise the call's error. Raises TimeoutError, with the call's place in the
        code, if it is late. The call then continues, and nobody waits for it."""
        self._thread.join(max(seconds, 0.0))
        if self._thread.is_alive():
            raise TimeoutError(f"not done within {seconds:.0f} s; it is at {self._place()}")
        return self._answer()

    def unless(self, stopped: Callable[[], bool], within: float = math.inf) -> Answer:
        """Return the result, or raise the call's error. Raises GivenUp once `stopped` returns True, and
        TimeoutError if late. Both name the place in the code. The call then continues unattended."""
        end = time.monotonic() + within
        while self._thread.is_alive():
            if stopped():
                raise GivenUp(f"the worker stops; it is at {self._place()}")
            if time.monotonic() >= end:
                raise TimeoutError(f"not done within {within:.0f} s; it is at {self._place()}")
            self._thread.join(_LOOK_SECONDS)
        return self._answer()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def _answer(self) -> Answer:
        if self._error is not None:
            raise self._error
        return self._answers[0]

    def _run(self) -> None:
        try:
            self._answers.append(self._do())
        except BaseException as error:  # raised again in the waiting thread
            self._error = error

    def _place(self) -> str:
        frame = sys._current_frames().get(self._thread.ident or 0)
        if frame is None:
            return "its end"
        inner = traceback.extract_stack(frame)[-3:]
        return " > ".join(f"{each.filename}:{each.lineno} {each.name}" for each in inner)


class Background:
    """One daemon thread, from `start` to `end`."""

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        """`run` returns soon after `stopped` is set."""
        self.stopped = threading.Event()
        self._thread = threading.Thread(target=run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Start nothing more."""
        self.stopped.set()

    def ended(self, within: float | None = None) -> bool:
        """Wait up to `within` seconds, or without a limit. Return whether the thread has ended. Call `end`
        first."""
        if self._thread.ident is not None:
            self._thread.join(within)
        return not self._thread.is_alive()


_log = get_logger("process")


class _End:
    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the two below
        self._wanted: dict[Callable[[], None], None] = {}
        self._over = False

    def add(self, do: Callable[[], None]) -> Callable[[], None]:
        with self._lock:
            if self._over:
                raise RuntimeError("the process ends")
            self._wanted[do] = None
        return lambda: self._forget(do)

    def _forget(self, do: Callable[[], None]) -> None:
        with self._lock:
            self._wanted.pop(do, None)

    def come(self) -> None:
        with self._lock:
            wanted, self._wanted, self._over = self._wanted, {}, True
        for do in wanted:
            try:
                do()
            except Exception as error:
                _log.warning("process_end_failed", error=str(error))


_end = _End()


def at_process_end(do: Callable[[], None]) -> Callable[[], None]:
    """Call `do` once when the process ends in order. The returned function cancels this. Any thread.

    Raises RuntimeError if the process is already ending."""
    return _end.add(do)


@atexit.register
def process_ends() -> None:
    """Run the callbacks. Call this before `os._exit`, which skips Python's own exit handlers."""
    _end.come()
