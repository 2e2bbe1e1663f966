"""The Java process of a Spark whose driver runs beside the worker."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark import SparkConf
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from worker.java import find_java
from worker.logs import get_logger

__all__ = ["JavaProcess"]

_STOP_SECONDS = 15.0
_DYING_SECONDS = 5.0
_READER_SECONDS = 2.0
_STACK_LINE = re.compile(r"\s+(at |\.\.\. \d+ more)")
_OUT_OF_MEMORY = 52
"""org.apache.spark.util.SparkExitCode.OOM: where driver and executor are one process, it is its end."""

_log = get_logger("spark")


class JavaProcess:
    """pyspark's gateway: started by this, passing on what it prints, ended by `stop`.

    It leads a session of its own, so that a signal meant for the worker (or for its whole process group, as
    Ctrl-C is) does not end Spark before the worker has drained. It ends with the worker all the same, even
    with a killed one: the gateway exits when its standard input closes.
    """

    def __init__(self, conf: SparkConf, *, loopback: bool) -> None:
        """`loopback`: its web pages are for this machine alone.

        Raises JavaError, and RuntimeError with what it printed when it does not start.
        """
        self._said: deque[str] = deque(maxlen=20)
        environment = {"JAVA_HOME": str(find_java().home)}
        if loopback and "SPARK_LOCAL_IP" not in os.environ:
            # The only way to tell Spark's web pages an address: without it they listen on all of them.
            environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        output, put = os.pipe()
        self._reader = threading.Thread(target=self._read, args=(output,), name="spark-log", daemon=True)
        self._reader.start()
        try:
            with _environment(environment):
                self.gateway: Any = launch_gateway(  # type: ignore[no-untyped-call]  # pyspark leaves it so
                    conf, {"start_new_session": True, "stdout": put, "stderr": subprocess.STDOUT}
                )
        except PySparkRuntimeError as error:
            os.close(put)
            self._reader.join()
            said = " | ".join(self._said) or "it said nothing"
            raise RuntimeError(f"Spark's Java process did not start: {said}") from error
        os.close(put)
        self._process: subprocess.Popen[bytes] = self.gateway.proc
        self.pid = self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def ends_within(self, seconds: float) -> bool:
        """Whether it has ended, or does in that time."""
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
        code = self._process.poll()
        how = "stopped inside its Java process" if code is None else f"ended ({_ending(code)})"
        last = f"; its last words: {self._said[-1]}" if self._said else ""
        return f"{how}{last}"

    def stop(self) -> None:
        """Close the gateway's standard input, and kill it if it goes on for 15 s."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        if not self.ends_within(_STOP_SECONDS):
            _log.warning("spark_killed", pid=self.pid, waited_seconds=_STOP_SECONDS)
            self.kill()
            self._process.wait()
        self._reader.join(_READER_SECONDS)  # a process that it started may have its output, too

    def kill(self) -> None:
        """Whoever waits for an answer of it gets an error."""
        self._process.kill()

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
