"""A start that runs in the background. Callers may wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait

from handlers.api import StopWorker, TargetUnavailable

_LOOK_SECONDS = 0.2

Heard = Callable[[BaseException | None], None]
"""Receives the error, or None after success."""


class Start:
    """Runs `do` in its own thread, `spark-starting`. Any thread may call any method."""

    def __init__(self, do: Callable[[], None], stopping: Callable[[], bool]) -> None:
        """`stopping`: whether the worker stops, so that nobody must wait any more."""
        self._do = do
        self._stopping = stopping
        self._end: Future[None] = Future()
        threading.Thread(target=self._run, name="spark-starting", daemon=True).start()

    @property
    def done(self) -> bool:
        """Whether it has ended without an error."""
        return self._end.done() and self._end.exception() is None

    def result(self) -> None:
        """Wait for it. Raises its error."""
        self._end.result()

    def over_within(self, seconds: float) -> bool:
        """Whether it has ended, well or not, or ends within these seconds."""
        return bool(wait([self._end], seconds).done)

    def needed(self) -> None:
        """Wait for it. Raises StopWorker if it failed, and TargetUnavailable if the worker stops: waiting
        batches arrive again then."""
        while not self.over_within(_LOOK_SECONDS):
            if self._stopping():
                raise TargetUnavailable("Spark has not started yet, but the worker is stopping")
        if (error := self._end.exception()) is not None:
            raise StopWorker(f"Spark did not start: {error}") from error

    def tell(self, heard: Heard) -> None:
        """Call `heard` at the end, with the error or None. At once if it is over, else in its thread."""
        self._end.add_done_callback(lambda end: heard(end.exception()))

    def _run(self) -> None:
        try:
            self._do()
        except BaseException as error:  # passed to those who need it
            self._end.set_exception(error)
        else:
            self._end.set_result(None)
