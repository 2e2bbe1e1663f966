"""A Spark whose driver runs beside the worker: local, or of a cluster.

It is watched, because it may be idle or block everybody. When it is gone or useless, the worker must stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from handlers.api import StopWorker
from handlers.hanging_calls import Bounded
from handlers.logs import get_logger
from handlers.spark.options import SparkSection
from handlers.spark.runtime.class_archive import with_archive
from handlers.spark.runtime.conf import on_loopback, spark_conf
from handlers.spark.runtime.errors import is_connection_error
from handlers.spark.runtime.java_process import JavaProcess
from handlers.spark.runtime.start import KILLED_SECONDS, STOP_SECONDS, WATCH_SECONDS, Start

_DEATH_SECONDS = 3.0
_TELL_SECONDS = 30.0
"""Between two warnings about a slow start."""

_log = get_logger("spark")


class Driver:
    """A Spark context in its own Java process (see JavaProcess). It starts when it is first needed, in its
    own thread. Calls that need a session wait for that with `Start.needed`, and raise what it raises."""

    def __init__(
        self,
        section: SparkSection,
        folder: Path,
        name: str,
        within: float,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """`within`: the most seconds for the start. `stopping`: see Start."""
        self.master = section.master
        self.version: str | None = None
        self.ui_url: str | None = None
        """The address of Spark's own web pages. None if they are off. With a master on this machine, they
        listen only on 127.0.0.1."""
        self._lock = threading.Lock()  # guards the next
        self._given_up: str | None = None
        self._process = JavaProcess(loopback=on_loopback(section.master))
        self.start = Start(lambda: self._start(section, folder, name, within), stopping)
        """Ends with JavaError, JarsError, or RuntimeError if Spark does not start in time."""

    @property
    def session(self) -> SparkSession:
        self.start.needed()
        return self._session

    def fresh(self) -> SparkSession:
        return self.session.newSession()

    def renewed(self, session: SparkSession) -> SparkSession:
        return session

    def drop(self, session: SparkSession) -> None:
        """Does nothing: `stop` would stop Spark itself, and the JVM drops sessions itself."""

    @property
    def up(self) -> bool:
        """Whether the Java process runs."""
        return self._process.runs

    def alive(self) -> bool:
        """Whether the Java process runs and its Spark has not stopped."""
        if not self._process.runs:
            return False
        try:
            return not self._context().isStopped()
        except Exception:  # whatever it is, nobody answered
            return False

    def raise_if_gone(self, error: BaseException) -> None:
        """Raise StopWorker if Spark itself is gone."""
        if not self.start.done:
            return  # callers that waited for it got its error
        # A killed process closes its sockets a moment before it can be waited for.
        ended = self._process.ends_within(_DEATH_SECONDS if is_connection_error(error) else 0)
        if ended or not self.alive():
            raise self.gone() from error

    def gone(self) -> StopWorker:
        with self._lock:
            if self._given_up is None:
                self._give_up(f"Spark is gone: it {self._process.end()}")
            return StopWorker(self._given_up)

    def abandon(self, reason: str) -> StopWorker:
        """Declare Spark useless for this reason. Returns the error that stops the worker."""
        with self._lock:
            if self._given_up is None:
                self._give_up(reason)
            return StopWorker(self._given_up)

    def _give_up(self, reason: str) -> None:
        """Kill the Java process. If Spark has stopped inside it, calls may wait forever: a job that arrived
        during the stop neither runs nor fails. Only the end of the process ends these calls."""
        self._given_up = reason
        self._process.kill()

    def executors(self) -> int | None:
        """The number of executors of a standalone cluster. None for other masters, or without an answer.

        A restarted standalone master takes the executors away and assigns none again. The driver gets no
        notice, and its jobs wait forever."""
        if not self.master.startswith("spark://"):
            return None
        try:
            return len(self._context().statusTracker().getExecutorInfos()) - 1  # the driver is one
        except Exception:  # whatever it is, nobody answered
            return None

    def has_jobs(self) -> bool:
        try:
            return len(self._context().statusTracker().getActiveJobIds()) > 0
        except Exception:  # whatever it is, nobody answered
            return False

    def stop(self) -> None:
        """Stop Spark and wait for its Java process to end. The process is killed if it takes too long, or at
        once while it starts."""
        if self.start.forgo():
            return
        if not self.start.over_within(0):
            self._process.kill()
            self.start.over_within(KILLED_SECONDS)
        if not self.start.done:
            return
        if self._process.runs:
            stopper = threading.Thread(target=self._stop, name="spark-stop", daemon=True)
            stopper.start()
            stopper.join(STOP_SECONDS)
            if stopper.is_alive():
                _log.warning("spark_does_not_stop", pid=self._process.pid, waited_seconds=STOP_SECONDS)
                self._process.kill()
                stopper.join(KILLED_SECONDS)  # its calls fail now
        _forget()
        self._process.stop()

    def _stop(self) -> None:
        try:
            self.session.stop()
            self._process.gateway.shutdown()
        except Exception as error:
            _log.warning("spark_stop_failed", error=str(error))

    def _context(self) -> Any:
        return self._session.sparkContext._jsc.sc()

    def _start(self, section: SparkSection, folder: Path, name: str, within: float) -> None:
        # Not in the main thread: there SparkContext would replace the worker's SIGINT handler.
        start = Bounded("spark-start", lambda: self._launch(section, folder, name))
        began = time.monotonic()
        while True:
            left = began + within - time.monotonic()
            try:
                self._session = start.within(min(left, _TELL_SECONDS))
                break
            except TimeoutError as error:
                waited = time.monotonic() - began
                if start.is_over:
                    raise
                if waited >= within:
                    place = str(error).partition("; ")[2]
                    raise self._late(start, f"not done within {within:.0f} s; {place}") from None
                _log.warning(
                    "spark_starts_slowly",
                    master=self.master,
                    waited_seconds=round(waited),
                    given_up_after_seconds=round(within),
                    said=self._process.said(),
                )
        self.version = self._session.version
        self.ui_url = self._session.sparkContext.uiWebUrl

    def _late(self, start: Bounded[SparkSession], place: str) -> RuntimeError:
        """Give up the start. Killing its Java process makes everything that waits for it fail."""
        said = self._process.said()
        self._process.kill()
        with suppress(Exception):
            start.within(KILLED_SECONDS)
        _forget()
        return RuntimeError(f"Spark ({self.master}) has not started: {place}; its Java process: {said}")

    def _launch(self, section: SparkSection, folder: Path, name: str) -> SparkSession:
        if SparkContext._active_spark_context is not None:
            raise RuntimeError("another Spark session already runs in this process")
        properties = with_archive(spark_conf(section, folder, name))
        conf = SparkConf(loadDefaults=False)
        conf.setAll(list(properties.items()))
        self._process.launch(conf)
        try:
            context = SparkContext(conf=conf, gateway=self._process.gateway)
        except Exception:
            _forget()
            self._process.stop()
            raise
        self._process.started()
        _log.info("spark_started", pid=self._process.pid, master=self.master, version=context.version)
        return SparkSession(context)


def _forget() -> None:
    """Make pyspark forget its gateway, which it keeps otherwise. The next session needs a new one."""
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


_LOOK_SECONDS = 2.0
_ABANDONED_SECONDS = 60.0
_SILENT_SECONDS = 30.0


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
