"""Spark's own servers for tests: a standalone cluster, and a Spark Connect server; from pyspark's jars."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import psutil
from spark_sessions import INTERPRETED, QUICK_JAVA

from handlers.spark.runtime.class_archive import OPTIONS, with_archive
from handlers.spark.runtime.jars import delta_jars, spark_jars_folder
from handlers.spark.runtime.versions import find_java
from worker.local import broker_guard
from worker.local.broker_settings import HOST, free_port

__all__ = ["CONNECT_SERVER", "ConnectNode", "SparkCluster", "SparkNode", "ThriftNode", "eventually"]

CONNECT_SERVER = "BINLANE_TEST_CONNECT_SERVER"
"""Environment variable: a Python whose pyspark is the Connect server's (`make matrix`)."""
_START_SECONDS = 90
_STOP_SECONDS = 20


def eventually(true: Callable[[], bool], what: str, within: float = 60) -> None:
    """Wait until it is; AssertionError when it is not within so many seconds."""
    deadline = time.monotonic() + within
    while not true():
        assert time.monotonic() < deadline, f"not within {within:g} s: {what}"
        time.sleep(0.05)


class SparkNode:
    """One Java process of Spark on 127.0.0.1, with a folder of its own. It ends with this process, however
    this one ends (see `worker.local.broker_guard`)."""

    def __init__(
        self,
        name: str,
        command: list[str],
        ready: Callable[[SparkNode], bool],
        *,
        heap: str = "256m",
        home: Path | None = None,
    ) -> None:
        """`command`: a program of Spark's `bin` with its arguments; `ready`: whether it serves; `home`: of
        another Spark than this Python's."""
        self.name = name
        self.folder = Path(tempfile.mkdtemp(prefix=f"binlane-spark-{name}-"))
        self._command = command
        self._ready = ready
        self._heap = heap
        self._home = home or spark_jars_folder().parent
        self._guard: subprocess.Popen[bytes] | None = None
        self.pid = 0

    def start(self) -> None:
        """Returns when it serves. AssertionError with its log when it does not."""
        home = self._home
        program, *arguments = self._command
        guard = (sys.executable, "-I", "-S", broker_guard.__file__, str(_STOP_SECONDS), str(self.folder))
        environment = {
            **os.environ,
            "JAVA_HOME": str(find_java().home),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": self._heap,
            "SPARK_DAEMON_JAVA_OPTS": with_archive({OPTIONS: QUICK_JAVA})[OPTIONS],
            "SPARK_LOCAL_DIRS": str(self.folder),
            "PYSPARK_PYTHON": sys.executable,
        }
        with (self.folder / "log").open("ab") as log:
            self._guard = subprocess.Popen(
                [*guard, str(home / "bin" / program), *arguments],
                bufsize=0,
                cwd=self.folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._guard.stdout is not None
        self.pid = int(self._guard.stdout.readline())  # the shell script becomes the Java process
        self._guard.stdout.close()
        eventually(self._serves, f"{self.name} serves", _START_SECONDS)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    @property
    def running(self) -> bool:
        return self._guard is not None and self._guard.poll() is None

    def kill(self) -> None:
        """Ends it as a power cut would."""
        guard, self._guard = self._guard, None
        if guard is None:
            return
        if guard.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
        guard.wait(_STOP_SECONDS)
        assert guard.stdin is not None
        guard.stdin.close()

    def close(self) -> None:
        """Ends it, and removes its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _serves(self) -> bool:
        assert self.running, f"{self.name} ended while it started:\n{self.log[-3000:]}"
        return self._ready(self)


class SparkCluster:
    """A standalone cluster of one master and one worker, which has two cores and 1 GiB for executors."""

    def __init__(self) -> None:
        port = free_port()
        self.url = f"spark://{HOST}:{port}"
        self.master = SparkNode(
            "master",
            [
                *("spark-class", "org.apache.spark.deploy.master.Master"),
                *("--host", HOST, "--port", str(port), "--webui-port", "0"),
            ],
            lambda node: "I have been elected leader" in node.log,
        )
        self.worker = SparkNode(
            "worker",
            [
                *("spark-class", "org.apache.spark.deploy.worker.Worker"),
                *("--host", HOST, "--webui-port", "0", "--cores", "2", "--memory", "1g"),
                *("--work-dir", "work", self.url),
            ],
            lambda node: "Successfully registered with master" in node.log,
        )

    def start(self) -> None:
        """Returns when the worker is known to the master."""
        self.master.start()
        self.worker.start()

    def section(self, **conf: str) -> dict[str, object]:
        """The configuration's `spark:` section; executors of 512 MiB."""
        own = {
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": QUICK_JAVA,
            "spark.driver.extraJavaOptions": QUICK_JAVA,
            "spark.sql.shuffle.partitions": "2",
            **INTERPRETED,
        }
        return {"master": self.url, "driver_memory": "1g", "conf": {**own, **conf}}

    def executors(self) -> list[psutil.Process]:
        """The running executors' processes."""
        found = []
        for child in psutil.Process(self.worker.pid).children(recursive=True):
            with suppress(psutil.Error):  # it ended meanwhile
                if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
                    found.append(child)
        return found

    def end_applications(self) -> None:
        """Ends all that run, as somebody at the master's web page may."""
        [address] = re.findall(r"Bound MasterWebUI to .* started at (\S+)", self.master.log)[-1:]
        with httpx.Client(base_url=address, trust_env=False) as page:
            for application in page.get("/json/").json()["activeapps"]:
                page.post("/app/kill/", data={"id": application["id"], "terminate": "true"})

    def close(self) -> None:
        for executor in self.executors() if self.worker.running else []:
            executor.kill()
        self.worker.close()
        self.master.close()


class DeltaNode(SparkNode):
    """A server with Delta, a local Spark behind it."""

    def __init__(self, name: str, server: str, address: str, port: str, conf: Mapping[str, str]) -> None:
        """`server`: its class; `address` and `port`: the properties of where it listens."""
        self.port = free_port()
        home, jars = _server()
        properties = {
            "spark.master": "local[2]",
            address: HOST,
            port: str(self.port),
            "spark.jars": ",".join(map(str, jars)),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "1",
            "spark.ui.enabled": "false",
            **INTERPRETED,
            **conf,
        }
        options = [part for key, value in properties.items() for part in ("--conf", f"{key}={value}")]
        super().__init__(name, ["spark-submit", *options, "--class", server], _listens, heap="1g", home=home)


class ThriftNode(DeltaNode):
    """Spark's Thrift server, which BI tools query by JDBC. `conf`: of its catalog."""

    def __init__(self, **conf: str) -> None:
        server = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"
        settings = [f"spark.hadoop.hive.server2.thrift.{each}" for each in ("bind.host", "port")]
        # Its threads do not see what `spark.jars` adds.
        path = {"spark.driver.extraClassPath": os.pathsep.join(map(str, _server()[1]))}
        super().__init__("thrift", server, *settings, path | conf)

    def query(self, sql: str) -> list[str]:
        """The rows that Hive's own client prints, as CSV."""
        home = self._home
        options = ["--silent=true", "--outputformat=csv2", "--showHeader=false"]
        url = f"jdbc:hive2://{HOST}:{self.port}"
        command = [str(home / "bin/beeline"), *options, "-u", url, "-e", sql]
        env = os.environ | {"JAVA_HOME": str(find_java().home), "SPARK_HOME": str(home)}
        ended = subprocess.run(command, env=env, check=False, capture_output=True, text=True, timeout=240)
        assert ended.returncode == 0, ended.stderr
        rows = [line.rpartition("> ")[2] for line in ended.stdout.splitlines()]  # after its prompt
        return list(filter(None, rows))


class ConnectNode(DeltaNode):
    """A Spark Connect server."""

    def __init__(self, **conf: str) -> None:
        """`conf`: more properties of the server's Spark."""
        server = "org.apache.spark.sql.connect.service.SparkConnectServer"
        settings = [f"spark.connect.grpc.binding.{each}" for each in ("address", "port")]
        super().__init__("connect", server, *settings, conf)

    @property
    def url(self) -> str:
        return f"sc://{HOST}:{self.port}"

    @property
    def version(self) -> str:
        """Spark's."""
        return re.findall(r"__version__.*'(.+)'", (self._home / "version.py").read_text())[0]

    @contextmanager
    def session(self) -> Iterator[Any]:
        """A session that is nobody else's."""
        from pyspark.sql.connect.session import SparkSession

        session = SparkSession.builder.remote(self.url).create()
        try:
            yield session
        finally:
            session.stop()

    def section(self, **conf: str) -> dict[str, object]:
        """The configuration's `spark:` section."""
        return {"remote": self.url, "conf": conf}


@cache
def _server() -> tuple[Path, list[Path]]:
    """The Spark of the Connect server, and Delta's jars for it. CONNECT_SERVER names another Python's."""
    if (python := os.environ.get(CONNECT_SERVER)) is None:
        return spark_jars_folder().parent, delta_jars()
    code = (
        "from handlers.spark.runtime.jars import delta_jars, spark_jars_folder\n"
        "print(spark_jars_folder().parent, *delta_jars(), sep='\\n')"
    )
    run = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    home, *jars = map(Path, run.stdout.splitlines())
    return home, jars


def _listens(node: SparkNode) -> bool:
    assert isinstance(node, DeltaNode)
    with socket.socket() as probe:
        return probe.connect_ex((HOST, node.port)) == 0
