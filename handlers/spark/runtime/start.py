"""A start that others need not wait for, and some do."""

from __future__ import annotations

import threading
from collections.abc import Callable

from handlers.api import StopWorker, TargetUnavailable

_LOOK_SECONDS = 0.2

Heard = Callable[[BaseException | None], None]
"""Is told the error, or None when all went well."""


class Start:
    """Runs `do` in a thread of its own, `spark-starting`. Any thread may call any method."""

    def __init__(self, do: Callable[[], None], stopping: Callable[[], bool]) -> None:
        """`stopping`: whether the worker stops, so that nobody is to wait any more."""
        self._do = do
        self._stopping = stopping
        self._lock = threading.Lock()  # guards the next, and that each is told once
        self._listeners: list[Heard] = []
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="spark-starting", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether it has come to its end without an error."""
        return self._over.is_set() and self._error is None

    @property
    def error(self) -> BaseException | None:
        """What it raised."""
        return self._error

    def over_within(self, seconds: float | None) -> bool:
        """Whether it has come to its end, well or not, or does in that time; None: wait for it."""
        return self._over.wait(seconds)

    def needed(self) -> None:
        """Wait for it. Raises StopWorker when it failed, and TargetUnavailable when the worker stops: what
        waits comes again then."""
        while not self._over.wait(_LOOK_SECONDS):
            if self._stopping():
                raise TargetUnavailable("Spark has not started yet, but the worker is stopping")
        if self._error is not None:
            raise StopWorker(f"Spark did not start: {self._error}") from self._error

    def tell(self, heard: Heard) -> None:
        """Call `heard` at the end, with the error or None: at once where it is over, else in its thread."""
        with self._lock:
            if not self._over.is_set():
                self._listeners.append(heard)
                return
        heard(self._error)

    def _run(self) -> None:
        try:
            self._do()
        except BaseException as error:  # told to whoever needs it
            self._error = error
        with self._lock:
            self._over.set()
            listeners, self._listeners = self._listeners, []
        for heard in listeners:
            heard(self._error)
