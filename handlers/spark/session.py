"""The Spark session that all Spark handlers of this process share, and the Java process behind it."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # it has no types
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from handlers.api import StopWorker
from handlers.spark.section import SparkSection
from worker.jars import delta_jars, resolve
from worker.java import find_java
from worker.logs import get_logger

__all__ = ["SharedSpark", "acquire", "release", "spark_conf"]

_STOP_SECONDS = 20.0
_DEATH_SECONDS = 3.0

_log = get_logger("spark")

# pyspark's own logger writes each failed query, with Java's whole stack, to standard error; what failed is
# raised, and told by whoever handles it.
logging.getLogger("SQLQueryContextLogger").disabled = True


class SharedSpark:
    """A running Spark with its own Java process.

    The Java process leads a session of its own, so that a signal meant for the worker (or for its whole
    process group, as Ctrl-C is) does not end Spark before the worker has drained. It ends with the worker all
    the same, even with a killed one: Spark's gateway exits when its standard input closes.
    """

    def __init__(self, section: SparkSection, folder: Path, name: str) -> None:
        self.section = section
        self.slots = threading.BoundedSemaphore(section.concurrency)
        """Bounds the batches that are written at once."""
        self._said: deque[str] = deque(maxlen=20)
        self._started: SparkSession | BaseException | None = None
        # Not in the main thread: there SparkContext would replace the worker's SIGINT handler by its own.
        starter = threading.Thread(target=self._start, args=(folder, name), name="spark-start")
        starter.start()
        starter.join()
        if isinstance(self._started, BaseException):
            raise self._started
        assert self._started is not None
        self.session: SparkSession = self._started

    def alive(self) -> bool:
        """True while the Java process runs and its Spark has not stopped."""
        if self._process.poll() is not None:
            return False
        try:
            return not self.session.sparkContext._jsc.sc().isStopped()
        except Exception:  # whatever it is: nobody answered
            return False

    def stop_worker_if_gone(self, error: BaseException) -> None:
        """After `error` from Spark: raises StopWorker when Spark itself is gone, else returns."""
        try:  # a process that was killed closes its sockets a moment before it can be waited for
            self._process.wait(_DEATH_SECONDS if _is_connection_error(error) else 0)
        except subprocess.TimeoutExpired:
            if self.alive():
                return
        code = self._process.poll()
        how = "stopped inside its Java process" if code is None else f"ended ({_ending(code)})"
        last = f"; its last words: {self._said[-1]}" if self._said else ""
        raise StopWorker(f"Spark is gone: it {how}{last}") from error

    def stop(self) -> None:
        """Stop Spark and wait for its Java process to end."""
        try:
            if self._process.poll() is None:
                self.session.stop()
                self._gateway.shutdown()
        except Exception as error:
            _log.warning("spark_stop_failed", error=str(error))
        finally:
            # pyspark keeps its gateway for the life of the process; the next session needs a new one.
            SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
            SparkSession._instantiatedSession = None
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            _log.warning("spark_killed", pid=self._process.pid, waited_seconds=_STOP_SECONDS)
            self._process.kill()
            self._process.wait()
        self._reader.join()

    def _start(self, folder: Path, name: str) -> None:
        try:
            self._started = self._launch(folder, name)
        except BaseException as error:  # raised again in the thread that asked
            self._started = error

    def _launch(self, folder: Path, name: str) -> SparkSession:
        if SparkContext._active_spark_context is not None:
            raise RuntimeError("another Spark session already runs in this process")
        os.environ["JAVA_HOME"] = str(find_java().home)  # spark-submit reads it
        conf = SparkConf(loadDefaults=False)
        conf.setAll(list(spark_conf(self.section, folder, name).items()))
        output, put = os.pipe()
        self._reader = threading.Thread(target=self._read, args=(output,), name="spark-log", daemon=True)
        self._reader.start()
        try:
            self._gateway = launch_gateway(  # type: ignore[no-untyped-call]  # pyspark leaves it untyped
                conf, {"start_new_session": True, "stdout": put, "stderr": subprocess.STDOUT}
            )
        except PySparkRuntimeError as error:
            os.close(put)
            self._reader.join()
            said = " | ".join(self._said) or "it said nothing"
            raise RuntimeError(f"Spark's Java process did not start: {said}") from error
        os.close(put)
        self._process = self._gateway.proc
        context = SparkContext(conf=conf, gateway=self._gateway)
        self._said.clear()  # only what it says from now on can explain its end
        _log.info("spark_started", pid=self._process.pid, master=self.section.master, version=context.version)
        return SparkSession(context)

    def _read(self, output: int) -> None:
        """Pass on what the Java process prints, until it ends."""
        with open(output, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if text := line.rstrip():
                    self._said.append(text)
                    _log.debug("spark_output", line=text)


def spark_conf(section: SparkSection, folder: Path, name: str) -> dict[str, str]:
    """Spark's properties for `section`; relative places start at `folder`."""
    jars = delta_jars()
    if section.packages:
        known = {jar.name for jar in jars}
        jars += [jar for jar in resolve(section.packages, kind="spark") if jar.name not in known]
    conf = {
        "spark.master": section.master,
        "spark.app.name": name,
        "spark.driver.memory": section.driver_memory,
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": place(section.warehouse, folder),
        "spark.sql.session.timeZone": "UTC",
        # Batches are small: what helps large queries (many partitions, a UI, fair pools) only costs here.
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        # A datetime column may come to any table, and Delta adds this to none that exists.
        "spark.databricks.delta.properties.defaults.feature.timestampNtz": "supported",
        "spark.scheduler.mode": "FIFO",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
    }
    if section.master.startswith("local"):
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = "127.0.0.1"
    joined = ("spark.jars", "spark.sql.extensions")
    for key, value in section.conf.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        conf[key] = f"{conf[key]},{text}" if key in joined else text
    return conf


def place(path: str, folder: Path, escape: Callable[[str], str] = str) -> str:
    """`path` as Spark takes it: a URI as it is, a relative path beginning at `folder` (`escape`d)."""
    if "://" in path or path.startswith("file:"):
        return path
    return str(Path(escape(str(folder.absolute())), path))


def _is_connection_error(error: BaseException) -> bool:
    return isinstance(error, OSError | EOFError) or (
        isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)
    )


def _ending(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


# Guards the two names below.
_lock = threading.Lock()
_shared: SharedSpark | None = None
_holders = 0


def acquire(section: SparkSection, folder: Path, name: str) -> SharedSpark:
    """The process's Spark, started by the first who asks. Everyone who asked calls `release` once.

    Raises JavaNotFound, JarsUnavailable, and RuntimeError when Spark does not start.
    """
    global _shared, _holders  # noqa: PLW0603 (one Spark a process is pyspark's own rule)
    with _lock:
        if _shared is None:
            _shared = SharedSpark(section, folder, name)
        _holders += 1
        return _shared


def release() -> None:
    """The last holder's release stops Spark."""
    global _shared, _holders  # noqa: PLW0603 (see acquire)
    with _lock:
        _holders -= 1
        if _holders == 0 and _shared is not None:
            ending = _shared
            _shared = None
            ending.stop()
