"""binlane's side: the process `binlane run` with a generated configuration, watched from outside."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from benchmarks.processes import BenchmarkError, child, children_of, cpu_seconds, ended, peak_rss_kib
from benchmarks.tally import Tally, Totals

__all__ = ["Outcome", "WorkerRun", "binlane_command", "running_worker"]

_ROOT = Path(__file__).parent.parent
_LOOK_SECONDS = 0.02
_DRAIN_SECONDS = 60


@dataclass(frozen=True)
class Outcome:
    """Figures of one run. CPU is user and system time of the whole process, with all threads."""

    ok: bool
    """Every requested record was handled."""
    totals: Totals
    cpu_seconds: float
    """From the start of the process to the last record handled."""
    rss_kib: int
    """Peak resident memory."""
    all_cpu_seconds: float
    """As `cpu_seconds`, with its child processes."""
    child_rss_kib: int
    """Peak resident memory of the largest child process."""
    wall_seconds: float
    """Since the start of the process."""
    start_seconds: float
    """From the start of the process to the first record handled."""

    @property
    def records(self) -> int:
        return self.totals.records

    @property
    def seconds(self) -> float:
        """From the first record handled to the last."""
        return self.totals.seconds

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def cpu_at_first(self) -> float:
        """CPU seconds when the first record was handled."""
        return self.totals.cpu_at_first


class WorkerRun:
    """A running worker."""

    def __init__(self, process: subprocess.Popen[bytes], tally: Tally, log: Path) -> None:
        self.process = process
        self.tally = tally
        self._log = log
        self._begun = time.monotonic()

    def wait_for(self, records: int, limit: float) -> Outcome:
        """Wait until `records` are handled, for at most `limit` seconds.

        Raises BenchmarkError if the worker ends early.
        """
        deadline = time.monotonic() + limit
        while True:
            totals = self.tally.totals()
            done = totals.records >= records
            if done or time.monotonic() > deadline:
                return self.outcome(done)
            self.check()
            time.sleep(_LOOK_SECONDS)

    def outcome(self, ok: bool = True) -> Outcome:
        """Figures so far."""
        own, children = self.process.pid, children_of(self.process.pid)
        cpu, totals = cpu_seconds(own), self.tally.totals()
        return Outcome(
            ok,
            totals,
            cpu,
            self.peak_rss_kib(),
            all_cpu_seconds=cpu + sum(map(cpu_seconds, children)),
            child_rss_kib=max(map(peak_rss_kib, children), default=0),
            wall_seconds=time.monotonic() - self._begun,
            start_seconds=max(0.0, totals.first / 1e9 - self._begun),
        )

    def peak_rss_kib(self) -> int:
        """Peak resident memory so far, as the kernel reports it."""
        return peak_rss_kib(self.process.pid)

    def status(self) -> dict[str, Any]:
        """`/api/status`. Raises BenchmarkError if the worker does not log where it listens."""
        found = re.search(rb'"event": ?"http_listening".*', self._log.read_bytes())
        port = re.search(rb'"port": ?(\d+)', found[0]) if found else None
        if port is None:
            raise BenchmarkError(f"the worker did not log http_listening with its port:\n{self.log_tail()}")
        answer = httpx.get(f"http://127.0.0.1:{int(port[1])}/api/status", timeout=10)
        return dict(answer.raise_for_status().json())

    def check(self) -> None:
        """Raises BenchmarkError with the end of the log if the worker has ended."""
        if self.process.poll() is not None:
            raise BenchmarkError(f"the worker ended with {self.process.returncode}:\n{self.log_tail()}")

    def kill(self) -> None:
        """Send SIGKILL. Nothing is drained or committed."""
        self.process.kill()
        self.process.wait()

    def drain(self) -> None:
        """Send SIGTERM and wait. Raises BenchmarkError unless the exit code is 0."""
        if not ended(self.process, _DRAIN_SECONDS) or self.process.returncode != 0:
            raise BenchmarkError(f"the worker did not drain ({self.process.returncode}):\n{self.log_tail()}")

    def log_tail(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-3000:]


@contextmanager
def running_worker(
    *,
    bootstrap: str,
    topic: str,
    handler: str,
    options: Mapping[str, Any] | None = None,
    lanes: Mapping[str, Any] | None = None,
    max_ahead: int | None = None,
    interval: str = "5s",
    group: str | None = None,
    folder: Path | None = None,
) -> Iterator[WorkerRun]:
    """Run `binlane run` with one handler of benchmarks.handlers for all tables, and kill it at the end.

    `group` and `folder` (with its checkpoint file) are new unless given, as for a restart.
    """
    with tempfile.TemporaryDirectory(prefix="binlane-bench-") as temporary:
        work = folder or Path(temporary)
        tally = Tally(work / "tally", create=True)
        group = group or f"bench-{time.time_ns()}"
        configuration = {
            "kafka": {
                "bootstrap_servers": bootstrap,
                "group_id": group,
                "topics": [topic],
                "properties": {"session.timeout.ms": 6000},  # as the peers have it
            },
            "format": "canal",
            "lanes": {"count": 16, **(lanes or {})},
            **({} if max_ahead is None else {"max_ahead": max_ahead}),
            "checkpoint": {"interval": interval, "directory": str(work / "state"), "initial": "earliest"},
            "http": {"host": "127.0.0.1", "port": 0},
            "logging": {"level": "info", "format": "json"},
            "shutdown_timeout": "30s",
            "tables": [
                {
                    "match": "shop.*",
                    "handlers": [
                        {
                            "type": f"benchmarks.handlers:{handler}",
                            "tally": str(work / "tally"),
                            **(options or {}),
                        }
                    ],
                }
            ],
        }
        path = work / "binlane.yaml"
        path.write_text(yaml.safe_dump(configuration, sort_keys=False), encoding="utf-8")
        search = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
        log_path = work / "worker.log"
        command = [binlane_command(), "run", str(path)]
        with (
            log_path.open("wb") as log,
            child(command, stdout=log, stderr=log, environment={"PYTHONPATH": search}) as process,
        ):
            yield WorkerRun(process, tally, log_path)


def binlane_command() -> str:
    beside = Path(sys.executable).with_name("binlane")
    command = str(beside) if beside.exists() else shutil.which("binlane")
    if command is None:
        raise BenchmarkError("the command binlane is not installed: pip install -e '.[dev]' (or make bench)")
    return command
