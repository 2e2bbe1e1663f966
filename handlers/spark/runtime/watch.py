"""Watches a Spark that may be idle or may block everybody. When it is gone or useless, the worker must
stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from handlers.api import StopWorker
from handlers.logs import get_logger
from handlers.spark.close_times import WATCH_SECONDS
from handlers.spark.runtime.driver import Driver

_LOOK_SECONDS = 2.0
_ABANDONED_SECONDS = 60.0
_SILENT_SECONDS = 30.0

_log = get_logger("spark")


class Watch:
    """Calls each callback once when Spark is gone. Belongs to SharedSpark. Its thread `spark-watch` runs from
    the first `add` to `stop`."""

    def __init__(
        self,
        driver: Driver,
        *,
        look_seconds: float = _LOOK_SECONDS,
        abandoned_seconds: float = _ABANDONED_SECONDS,
    ) -> None:
        """`abandoned_seconds`: how long work may wait for executors after all were lost."""
        self._driver = driver
        self._look_seconds = look_seconds
        self._abandoned_seconds = abandoned_seconds
        self._stopped = threading.Event()
        self._lock = threading.Lock()  # guards the callbacks and the thread
        self._callbacks: list[Callable[[BaseException], None]] = []
        self._thread: threading.Thread | None = None
        self._answered = time.monotonic()
        self._had_executors = False
        self._without_since: float | None = None

    @property
    def up(self) -> bool:
        """Whether Spark answered in the last 30 seconds. A frozen one does not answer. Returns at once."""
        if self._thread is None:
            return self._driver.up
        return time.monotonic() - self._answered < _SILENT_SECONDS

    def add(self, stop_worker: Callable[[BaseException], None]) -> None:
        with self._lock:
            if stop_worker not in self._callbacks:
                self._callbacks.append(stop_worker)
            if self._thread is None:
                self._answered = time.monotonic()
                self._thread = threading.Thread(target=self._run, name="spark-watch", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(WATCH_SECONDS)  # a frozen JVM may not answer, then it ends with the JVM

    def _run(self) -> None:
        while not self._stopped.wait(self._look_seconds):
            reason = self._reason()
            if reason is None:
                continue
            if self._stopped.is_set():  # we are stopping it
                return
            with self._lock:
                callbacks = list(self._callbacks)
            for callback in callbacks:
                callback(reason)
            return

    def _reason(self) -> StopWorker | None:
        if not self._driver.alive():
            return self._driver.gone()
        self._answered = time.monotonic()
        executors = self._driver.executors()
        if executors is None or executors > 0 or not self._had_executors or not self._driver.has_jobs():
            self._had_executors = self._had_executors or bool(executors)
            self._without_since = None
            return None
        now = time.monotonic()
        if self._without_since is None:
            self._without_since = now
            _log.warning("spark_without_executors", master=self._driver.master)
        if now - self._without_since < self._abandoned_seconds:
            return None
        return self._driver.abandon(
            f"Spark has lost all executors, and {self._driver.master} has given none for "
            f"{self._abandoned_seconds:g} s: was its master restarted?"
        )
