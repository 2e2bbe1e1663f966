"""The Java process of a Spark whose driver runs beside the worker."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

from pyspark import SparkConf, java_gateway
from pyspark.errors import PySparkRuntimeError

from handlers.logs import get_logger
from handlers.process_end import at_process_end
from handlers.spark.close_times import JAVA_SECONDS, KILLED_SECONDS, OUTPUT_SECONDS
from handlers.spark.runtime.java import find_java
from handlers.spark.runtime.java_classes import remember_classes

_DYING_SECONDS = 5.0
_DUMP_SECONDS = 300.0
_STACK_LINE = re.compile(r"\s+(at |\.\.\. \d+ more)")
_OUT_OF_MEMORY = 52
"""org.apache.spark.util.SparkExitCode.OOM: where driver and executor are one process, it is its end."""

_log = get_logger("spark")


class JavaProcess:
    """pyspark's gateway: started by this, passing on what it prints, ended by `stop`.

    It leads a session of its own, so that a signal meant for the worker (or for its whole process group, as
    Ctrl-C is) does not end Spark before the worker has drained. It ends with the worker all the same, even
    with a killed one: the gateway exits when its standard input closes; while it starts, the worker kills it.
    """

    def __init__(self, *, loopback: bool) -> None:
        """`loopback`: its web pages are for this machine alone. Nothing is started yet."""
        self._loopback = loopback
        self._said: deque[str] = deque(maxlen=20)
        self._lock = threading.Lock()  # what is killed before it is started is never started
        self._killed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._writes_archive = False  # of its classes, as it ends
        self._folder: str | None = None  # where it tells its port

    def launch(self, conf: SparkConf) -> None:
        """Start it, and wait until it answers, for ever.

        Raises JavaError, and RuntimeError with what it printed when it does not start, or is killed."""
        environment = {"JAVA_HOME": str(find_java().home)}
        self._writes_archive = "ArchiveClassesAtExit" in (conf.get("spark.driver.extraJavaOptions") or "")
        started = at_process_end(self._leave_start)
        try:
            self._launch(conf, environment)
        finally:
            started()

    def _launch(self, conf: SparkConf, environment: dict[str, str]) -> None:
        if self._loopback and "SPARK_LOCAL_IP" not in os.environ:
            # The only way to tell Spark's web pages an address: without it they listen on all of them.
            environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        output, put = os.pipe()
        self._reader = threading.Thread(target=self._read, args=(output,), name="spark-log", daemon=True)
        self._reader.start()
        try:
            try:
                with _environment(environment), self._kept():
                    self.gateway: Any = java_gateway.launch_gateway(  # type: ignore[no-untyped-call]
                        conf, {"start_new_session": True, "stdout": put, "stderr": subprocess.STDOUT}
                    )
            finally:
                os.close(put)
            remember_classes(self.gateway)
        except PySparkRuntimeError as error:
            self._reader.join()
            raise RuntimeError(f"Spark's Java process did not start: {self.said()}") from error

    @property
    def pid(self) -> int | None:
        """None: it was not started."""
        return None if self._process is None else self._process.pid

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def said(self) -> str:
        """What it printed since `started`, or its beginning."""
        return " | ".join(self._said) or "no error message"

    def ends_within(self, seconds: float) -> bool:
        """Whether it has ended, or does in that time."""
        if self._process is None:
            return True
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def started(self) -> None:
        """What it says from now on can explain its end; what it said until now is forgotten."""
        self._said.clear()

    def end(self) -> str:
        """How it ended, or does in these seconds, and what it said last."""
        self.ends_within(_DYING_SECONDS)  # its Spark stops a moment before
        code = None if self._process is None else self._process.poll()
        how = "stopped inside its Java process" if code is None else f"ended ({_ending(code)})"
        last = f"; its last words: {self._said[-1]}" if self._said else ""
        return f"{how}{last}"

    def stop(self) -> None:
        """Close the gateway's standard input, and kill it if it goes on for JAVA_SECONDS."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        seconds = _DUMP_SECONDS if self._writes_archive else JAVA_SECONDS
        if not self.ends_within(seconds):
            _log.warning("spark_killed", pid=self.pid, waited_seconds=seconds)
            self.kill()
            if not self.ends_within(KILLED_SECONDS):
                _log.warning("spark_cannot_be_killed", pid=self.pid, waited_seconds=KILLED_SECONDS)
        self._reader.join(OUTPUT_SECONDS)

    def kill(self) -> None:
        """Whoever waits for an answer of it gets an error; it is not started any more. Any thread."""
        with self._lock:
            self._killed = True
        if self.runs:
            assert self._process is not None
            # With the scripts that start it, and what these wait for.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """pyspark tells which process it starts only once that answers, which it may never do."""
        names = vars(java_gateway)
        before = {name: names[name] for name in ("Popen", "tempfile")}

        def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
            with self._lock:
                self._check_wanted()
                self._process = made = subprocess.Popen(*arguments, **options)
            return made

        def make_folder() -> str:
            with self._lock:
                self._check_wanted()
                self._folder = made = tempfile.mkdtemp(prefix="binlane-spark-")
            return made

        names.update(Popen=start, tempfile=SimpleNamespace(mkdtemp=make_folder, mkstemp=tempfile.mkstemp))
        try:
            yield
        finally:
            names.update(before)

    def _check_wanted(self) -> None:
        if self._killed:
            raise RuntimeError("Spark must not be started any more")

    def _leave_start(self) -> None:
        """The process ends while this starts, and does not wait until pyspark has removed its folder. One
        that does not run yet would not see that its standard input closes."""
        self.kill()
        self.ends_within(KILLED_SECONDS)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _read(self, output: int) -> None:
        """Pass on what the Java process prints, until it ends."""
        with open(output, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if text := line.rstrip():
                    if not _STACK_LINE.match(text):
                        self._said.append(text)
                    _log.debug("spark_output", line=text)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """pyspark's launcher hands on this process's environment and takes no other."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _ending(code: int) -> str:
    if code == _OUT_OF_MEMORY:
        return f"exit code {code}: out of memory; raise spark.driver_memory"
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
