"""A start that runs in the background. Callers may wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

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
        self._lock = threading.Lock()  # guards the next, and that each is called once
        self._listeners: list[Heard] = []
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="spark-starting", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether it has ended without an error."""
        return self._over.is_set() and self._error is None

    @property
    def error(self) -> BaseException | None:
        return self._error

    def over_within(self, seconds: float | None) -> bool:
        """Whether it has ended, well or not, or ends within these seconds. None waits without limit."""
        return self._over.wait(seconds)

    def needed(self) -> None:
        """Wait for it. Raises StopWorker if it failed, and TargetUnavailable if the worker stops: waiting
        batches arrive again then."""
        while not self._over.wait(_LOOK_SECONDS):
            if self._stopping():
                raise TargetUnavailable("Spark has not started yet, but the worker is stopping")
        if self._error is not None:
            raise StopWorker(f"Spark did not start: {self._error}") from self._error

    def tell(self, heard: Heard) -> None:
        """Call `heard` at the end, with the error or None. At once if it is over, else in its thread."""
        with self._lock:
            if not self._over.is_set():
                self._listeners.append(heard)
                return
        heard(self._error)

    def _run(self) -> None:
        try:
            self._do()
        except BaseException as error:  # passed to those who need it
            self._error = error
        with self._lock:
            self._over.set()
            listeners, self._listeners = self._listeners, []
        for heard in listeners:
            heard(self._error)
