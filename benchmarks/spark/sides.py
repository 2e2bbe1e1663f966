"""The two sides as processes: `binlane run` with a Spark table for each source table, and the peer."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml

from benchmarks.peers import compiled
from benchmarks.processes import BenchmarkError, child, ended, peak_rss_kib
from benchmarks.spark.load import COLUMNS, DATABASE, table_name
from benchmarks.worker_run import binlane_command
from handlers.spark.runtime.jars import delta_jars, spark_jars_folder

__all__ = [
    "CHANGELOG",
    "HEAP",
    "REPLICA",
    "Side",
    "auto_cdc",
    "auto_cdc_checkpoints",
    "auto_cdc_folders",
    "binlane",
    "peer",
    "peer_batches",
    "table_folders",
    "ways_of_committing",
]

HEAP = "2g"
REPLICA: dict[str, Any] = {
    "match": f"{DATABASE}.*",
    "batch": {"max_records": 20_000, "max_wait": "1s"},
    "handlers": [{"type": "spark", "mode": "replica"}],
}
"""All tables as replicas, with the handler's own defaults."""
CHANGELOG: dict[str, Any] = {**REPLICA, "handlers": [{"type": "spark", "mode": "changelog"}]}
_ROOT = Path(__file__).parents[2]
_PEER = _ROOT / "benchmarks" / "peers" / "structured_streaming.py"
_AUTO_CDC = _PEER.with_name("auto_cdc.py")
_CATALOG = "MergeableDeltaCatalog"
_DRIVER = {"driver_memory": HEAP, "ui": False}
_DRAIN_SECONDS = 120
_READY_SECONDS = 120
_LOOK_SECONDS = 0.1


class Side:
    """A running process, including its Java process."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path, ready: bytes) -> None:
        self.name = name
        self.process = process
        self.started = time.time()
        """Seconds since 1970."""
        self.log = log
        self._ready = ready
        self._root = psutil.Process(process.pid)

    def wait_until_reading(self) -> float:
        """Return the seconds from its start until it reads. Raises BenchmarkError if it does not read."""
        self.wait(lambda: self._ready in self.log.read_bytes(), _READY_SECONDS, "begin to read")
        return time.time() - self.started

    def wait(self, done: Callable[[], bool], limit: float, what: str) -> None:
        """Wait until `done`. Raises BenchmarkError if the process ends early, or after `limit` seconds."""
        deadline = time.monotonic() + limit
        while not done():
            self.check()
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{self.name} did not {what} within {limit:.0f} s:\n{self._tail()}")
            time.sleep(_LOOK_SECONDS)

    def check(self) -> None:
        """Raises BenchmarkError with the end of the log if the process has ended."""
        if self.process.poll() is not None:
            raise BenchmarkError(f"{self.name} ended with {self.process.returncode}:\n{self._tail()}")

    def cpu_seconds(self) -> float:
        """User and system time of all its processes so far."""
        return sum(_cpu(process) for process in self._processes())

    def own_cpu_seconds(self) -> float:
        """The same, without its Java process."""
        return _cpu(self._root)

    def own_peak_mib(self) -> float:
        """Peak resident memory so far, without its Java process."""
        return peak_rss_kib(self.process.pid) / 1024

    def status(self) -> dict[str, Any] | None:
        """`/api/status` of a worker with `http`; None if it does not listen yet."""
        found = re.search(rb'"event": ?"http_listening".*', self.log.read_bytes())
        port = re.search(rb'"port": ?(\d+)', found[0]) if found else None
        if port is None:
            return None
        answer = httpx.get(f"http://127.0.0.1:{int(port[1])}/api/status", timeout=60, trust_env=False)
        return dict(answer.raise_for_status().json())

    def rss_mib(self) -> float:
        """Current resident memory of all its processes."""
        return sum(_rss(process) for process in self._processes()) / 2**20

    def kill(self) -> None:
        """SIGKILL to the process and its Java process, at once."""
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):  # Java ends by itself when its Python is gone
                process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Send SIGTERM and wait. Raises BenchmarkError unless the exit code is 0."""
        if not ended(self.process, _DRAIN_SECONDS) or self.process.returncode != 0:
            raise BenchmarkError(f"{self.name} did not stop ({self.process.returncode}):\n{self._tail()}")

    def _processes(self) -> list[psutil.Process]:
        try:
            return [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _tail(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-4000:]


@contextmanager
def binlane(
    *,
    bootstrap: str,
    topic: str,
    folder: Path,
    tables: Sequence[Mapping[str, Any]],
    spark: Mapping[str, Any] | None = None,
    lanes: Mapping[str, Any] | None = None,
    http: bool = False,
    environment: Mapping[str, str] | None = None,
    group: str = "",
    records: Mapping[str, Any] | None = None,
) -> Iterator[Side]:
    """Run `binlane run`, and kill it at the end. The same `folder` again is a restart.

    `tables` is that section of the configuration. The warehouse is `<folder>/lake` unless `spark` names
    another. `http` enables the status. `group` is the consumer group, by default the topic's name. `records`
    are the sections about the records' format, by default Canal's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    given = dict(spark or {})
    configuration = {
        "name": "bench",
        "kafka": {
            "bootstrap_servers": bootstrap,
            "group_id": group or topic,
            "topics": [topic],
            "properties": {"session.timeout.ms": 6000},
        },
        **(records or {"format": "canal"}),
        "lanes": dict(lanes or {}),
        "checkpoint": {"directory": "state", "initial": "earliest"},
        "http": {"host": "127.0.0.1", "port": 0} if http else None,
        "logging": {"level": "info", "format": "json"},
        "tables": list(tables),
        "spark": {"warehouse": "lake", **({} if "remote" in given else _DRIVER), **given},
    }
    path = folder / "binlane.yaml"
    path.write_text(yaml.safe_dump(configuration, sort_keys=False), encoding="utf-8")
    log_path = folder / "worker.log"
    command = [binlane_command(), "run", str(path)]
    with (
        log_path.open("wb") as log,
        _child(command, stdout=log, stderr=log, environment=environment) as process,
    ):
        yield Side("binlane", process, log_path, b"partition_assigned")


@contextmanager
def peer(
    *,
    source: Path,
    folder: Path,
    mode: str = "replica",
    max_files: int = 50,
    options: Sequence[str] = (),
    columns: Mapping[str, str] = COLUMNS,
) -> Iterator[Side]:
    """Run the Structured Streaming job, and kill it at the end. The same `folder` again is a restart.

    Its tables are in `<folder>/lake/shop/<table>`, like binlane's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, str(_PEER), "--mode", mode, "--source", str(source), "--heap", HEAP),
        *("--lake", str(folder / "lake" / DATABASE), "--checkpoint", str(folder / "checkpoint")),
        *("--max-files", str(max_files), *options),
        *(f"--column={name}={kind}" for name, kind in columns.items()),
    ]
    log_path, errors_path = folder / "peer.log", folder / "peer.errors"
    with (
        log_path.open("wb") as log,
        errors_path.open("wb") as errors,
        _child(command, stdout=log, stderr=errors) as process,
    ):
        yield Side("the Structured Streaming job", process, log_path, b'"ready"')


@contextmanager
def auto_cdc(
    *, source: Path, folder: Path, tables: Sequence[str], columns: Mapping[str, str] = COLUMNS
) -> Iterator[Side]:
    """Run AUTO CDC's pipeline, one update after the other, and kill it at the end.

    Raises BenchmarkError if its catalog does not compile.
    """
    folder.mkdir(parents=True, exist_ok=True)
    catalog = compiled((_CATALOG,), ":".join([*map(str, delta_jars()), f"{spark_jars_folder()}/*"]))
    command = [
        *(sys.executable, str(_AUTO_CDC), "--source", str(source), "--folder", str(folder), "--heap", HEAP),
        *("--catalog", _CATALOG, "--classes", str(catalog)),
        *(f"--table={table}" for table in tables),
        *(f"--column={name}={kind}" for name, kind in columns.items()),
    ]
    log_path = folder / "peer.log"
    with (
        log_path.open("wb") as log,
        _child(command, stdout=log, stderr=log) as process,
    ):
        yield Side("AUTO CDC", process, log_path, b'"ready"')


def auto_cdc_folders(folder: Path, tables: Sequence[str]) -> dict[int, Path]:
    """Return table -> its Delta folder."""
    return {number: folder / "lake" / f"{DATABASE}.db" / table for number, table in enumerate(tables)}


def auto_cdc_checkpoints(folder: Path, tables: Sequence[str]) -> dict[int, Path]:
    """Return table -> the checkpoint of its flow."""
    above = folder / "storage" / "_checkpoints" / "spark_catalog" / DATABASE
    return {number: above / table / table / "0" for number, table in enumerate(tables)}


def ways_of_committing(rule: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return name -> rule: the default, and all commits by Spark."""
    (handler,) = rule["handlers"]
    by_spark = {**rule, "handlers": [{**handler, "merge": {"engine": "spark"}}]}
    return {"binlane": dict(rule), "binlane, commits by Spark": by_spark}


def peer_batches(side: Side) -> list[dict[str, Any]]:
    """Return the peer's reports of its batches: batch, rows, began, seconds."""
    lines = [json.loads(line) for line in side.log.read_bytes().split(b"\n")[:-1]]
    return [line for line in lines if line["event"] == "batch"]


def table_folders(folder: Path, tables: int) -> dict[int, Path]:
    """Return table -> its Delta folder, for both sides."""
    return {table: folder / "lake" / DATABASE / table_name(table) for table in range(tables)}


@contextmanager
def _child(
    command: Sequence[str | Path], *, environment: Mapping[str, str] | None = None, **files: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """End Java with it in any case. The process leads its own session."""
    search = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    with child(command, environment={"PYTHONPATH": search, **(environment or {})}, **files) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                for one in psutil.Process(process.pid).children(recursive=True):
                    one.kill()


def _cpu(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def _rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
