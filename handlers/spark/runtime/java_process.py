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
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaClass, JVMView
from py4j.protocol import DEFAULT_JVM_ID, DEFAULT_JVM_NAME
from pyspark import SparkConf, java_gateway
from pyspark.errors import PySparkRuntimeError

from handlers.hanging_calls import at_process_end
from handlers.logs import get_logger
from handlers.spark.runtime.start import JAVA_SECONDS, KILLED_SECONDS, OUTPUT_SECONDS
from handlers.spark.runtime.versions import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = get_logger("spark")

_DYING_SECONDS = 5.0
_DUMP_SECONDS = 300.0
_STACK_LINE = re.compile(r"\s+(at |\.\.\. \d+ more)")
_OUT_OF_MEMORY = 52
"""org.apache.spark.util.SparkExitCode.OOM. If driver and executor are one process, it ends the process."""


class JavaProcess:
    """pyspark's gateway. Starts it, passes on its output, and ends it in `stop`.

    It leads its own session. So a signal to the worker (or to its process group, like Ctrl-C) does not end
    Spark before the worker has drained. It still ends with the worker, even a killed one: the gateway exits
    when its standard input closes. While it starts, the worker kills it."""

    def __init__(self, *, loopback: bool) -> None:
        """`loopback`: its web pages are only for this machine. Starts nothing yet."""
        self._loopback = loopback
        self._said: deque[str] = deque(maxlen=20)
        self._lock = threading.Lock()  # a process that is killed before its start is never started
        self._killed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._writes_archive = False  # of its classes, when it ends
        self._folder: str | None = None  # in which it writes its port

    def launch(self, conf: SparkConf) -> None:
        """Start it, and wait without limit until it answers.

        Raises JavaError. Raises RuntimeError with its output if it does not start, or is killed."""
        environment = {"JAVA_HOME": str(find_java().home)}
        self._writes_archive = "ArchiveClassesAtExit" in (conf.get("spark.driver.extraJavaOptions") or "")
        started = at_process_end(self._leave_start)
        try:
            self._launch(conf, environment)
        finally:
            started()

    def _launch(self, conf: SparkConf, environment: dict[str, str]) -> None:
        if self._loopback and "SPARK_LOCAL_IP" not in os.environ:
            # The only way to set the address of Spark's web pages. Without it, they listen on all addresses.
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
            # From now on, for pyspark's own code as well.
            client = self.gateway._gateway_client
            self.gateway.jvm = _RememberingView(client, jvm_name=DEFAULT_JVM_NAME, id=DEFAULT_JVM_ID)
        except PySparkRuntimeError as error:
            self._reader.join()
            raise RuntimeError(f"Spark's Java process did not start: {self.said()}") from error

    @property
    def pid(self) -> int | None:
        """None before the start."""
        return None if self._process is None else self._process.pid

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def said(self) -> str:
        """What it printed since `started`, or at its beginning."""
        return " | ".join(self._said) or "no error message"

    def ends_within(self, seconds: float) -> bool:
        """Whether it has ended, or ends within these seconds."""
        if self._process is None:
            return True
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def started(self) -> None:
        """Forget its output until now. Later output can explain its end."""
        self._said.clear()

    def end(self) -> str:
        """How it ended, or ends within _DYING_SECONDS, and its last output."""
        self.ends_within(_DYING_SECONDS)  # its Spark stops a moment before
        code = None if self._process is None else self._process.poll()
        how = "stopped inside its Java process" if code is None else f"ended ({_ending(code)})"
        last = f"; its last words: {self._said[-1]}" if self._said else ""
        return f"{how}{last}"

    def stop(self) -> None:
        """Close the gateway's standard input, and kill the process if it runs after JAVA_SECONDS."""
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
        """Kill it. Calls that wait for its answer fail, and it is not started again. Any thread."""
        with self._lock:
            self._killed = True
        if self.runs:
            assert self._process is not None
            # With the scripts that start it, and their child processes.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Keep the started process: pyspark names it only when it answers, which may never happen."""
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
        """Kill a starting process when the worker's process ends: it does not notice yet that its standard
        input closes. Also removes its folder, because pyspark may not."""
        self.kill()
        self.ends_within(KILLED_SECONDS)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _read(self, output: int) -> None:
        """Pass on the output of the Java process until it ends."""
        with open(output, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if text := line.rstrip():
                    if not _STACK_LINE.match(text):
                        self._said.append(text)
                    _log.debug("spark_output", line=text)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables: pyspark's launcher passes on this process's environment, and no other."""
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


def java_class(session: SparkSession, name: str) -> Any:
    """Return the class of this full name. Its static members are attributes. Raises Py4JError."""
    jvm: Any = session._jvm
    return getattr(jvm, name)


class _RememberingView(JVMView):  # type: ignore[misc]
    """Remembers the classes that it returned."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaClass):  # a package may get a class of its name later
            setattr(self, name, found)
        return found
