"""A start that runs in the background, when it is first needed. Callers may wait for it.

Also the longest durations of the parts of a close, in seconds. `close_timeout` includes their sum."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait

from handlers.api import StopWorker, TargetUnavailable

WORK_SECONDS = 15.0
"""For work that still runs when `merge.at_close` is over: merges, upkeep, the search for logs. All run in
parallel. Work that takes longer is abandoned and repeated at the next start."""
WATCH_SECONDS = 5.0
"""For the watch's last question to Spark."""
STOP_SECONDS = 10.0
"""For Spark to stop inside its Java process. After that, the process is killed."""
JAVA_SECONDS = 15.0
"""For the Java process to exit by itself. After that, it is killed."""
KILLED_SECONDS = 5.0
"""For a killed process to end, and for the calls that wait for it to fail."""
OUTPUT_SECONDS = 2.0
"""For the last lines of its output: a child process may keep the pipe open."""

CLOSE_SECONDS = WORK_SECONDS + WATCH_SECONDS + STOP_SECONDS + JAVA_SECONDS + KILLED_SECONDS + OUTPUT_SECONDS
"""The longest time that closing may take after `merge.at_close`."""

_LOOK_SECONDS = 0.2


class SparkStarts(Exception):
    """Spark has not started yet: come again in a moment."""


Heard = Callable[[BaseException | None], None]
"""Receives the error, or None after success."""


class Start:
    """Runs `do` once, in its own thread, `spark-starting`. Any thread may call any method."""

    def __init__(self, do: Callable[[], None], stopping: Callable[[], bool]) -> None:
        """`stopping`: whether the worker stops, so that nobody must wait any more."""
        self._do = do
        self._stopping = stopping
        self._end: Future[None] = Future()
        self._lock = threading.Lock()  # guards the next
        self.has_begun = False

    @classmethod
    def over(cls) -> Start:
        """Return the start of what runs already."""
        start = cls(lambda: None, bool)
        start.has_begun = True
        start._run()
        return start

    def begin(self) -> None:
        """Begin, unless it has begun. The other methods that wait for the end do so, too."""
        if self._is_first():
            threading.Thread(target=self._run, name="spark-starting", daemon=True).start()

    def forgo(self) -> bool:
        """Never begin. Returns False if it has begun. Those who need it get an error."""
        if is_first := self._is_first():
            self._end.set_exception(RuntimeError("it was stopped before it was needed"))
        return is_first

    def _is_first(self) -> bool:
        with self._lock:
            is_first, self.has_begun = not self.has_begun, True
        return is_first

    @property
    def done(self) -> bool:
        """Whether it has ended without an error."""
        return self._end.done() and self._end.exception() is None

    def result(self) -> None:
        """Wait for it. Raises its error."""
        self.begin()
        self._end.result()

    def over_within(self, seconds: float) -> bool:
        """Whether it has ended, well or not, or ends within these seconds."""
        return bool(wait([self._end], seconds).done)

    def needed(self) -> None:
        """Wait for it. Raises StopWorker if it failed, and TargetUnavailable if the worker stops: waiting
        batches arrive again then."""
        self.begin()
        while not self.over_within(_LOOK_SECONDS):
            if self._stopping():
                raise TargetUnavailable("Spark has not started yet, but the worker is stopping")
        if (error := self._end.exception()) is not None:
            raise StopWorker(f"Spark did not start: {error}") from error

    def check_done(self) -> None:
        """Return if it has ended. Raises SparkStarts if not, StopWorker if it failed."""
        self.begin()
        if not self._end.done():
            raise SparkStarts("Spark is starting")
        self.needed()

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
