"""Starts `binlane run` as a process of its own and looks at it from outside."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import httpx
import plain_http
import yaml

__all__ = ["WorkerProcess", "eventually"]

T = TypeVar("T")


def eventually(
    look: Callable[[], T | None], *, within: float = 30.0, what: str = "", every: float | None = None
) -> T:
    """Call `look` until its answer is true, and return that answer. AssertionError after `within` seconds."""
    if every is None:
        every = max(0.05, min(0.5, within / 500))  # what may take minutes is worth no processor of its own
    deadline = time.monotonic() + within
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(
                f"{what or 'it'} did not come true within {within:g} s; last seen: {found!r}"
            )
        time.sleep(every)


class Ends(Protocol):
    """Who wants to know when a worker is gone."""

    def note_end_of(self, worker: str) -> None:
        """This process (name:pid) has ended."""


class WorkerProcess:
    """One `binlane run`, with its configuration and logs in `folder`."""

    def __init__(self, folder: Path, config: dict[str, Any], run: Ends) -> None:
        self.folder = folder
        self.config = config
        self.run = run
        self.process: subprocess.Popen[bytes] | None = None
        self._log = folder / "log.jsonl"
        self._log_begin = 0
        self.expected_to_end = False
        """Its end is no surprise: a test has sent a signal or waits for it."""
        self.environment: dict[str, str] = {}
        """What it gets beside the environment of the tests."""
        folder.mkdir(parents=True, exist_ok=True)

    # ---- life ----

    def start(self, *, ready: bool = True, within: float = 30.0) -> WorkerProcess:
        """Start it (again), and wait until /readyz says so unless told otherwise."""
        path = self.folder / "binlane.yaml"
        path.write_text(yaml.safe_dump(self.config, sort_keys=False))
        self.expected_to_end = False
        self._log_begin = self._log.stat().st_size if self._log.exists() else 0
        here = Path(__file__).parent
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "binlane", "run", str(path)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=here.parents[1],
                env={**os.environ, "PYTHONPATH": str(here), "PYTHONFAULTHANDLER": "1", **self.environment},
                start_new_session=True,
            )
        if ready:
            self.wait_ready(within)
        return self

    def wait_ready(self, within: float = 30.0) -> None:
        eventually(lambda: self.alive() and self.ready(), within=within, what=f"{self.folder.name} ready")

    def sigterm(self, within: float = 30.0) -> int:
        """Send SIGTERM, wait for its end, and return the exit code."""
        self.terminate()
        return self.wait(within)

    def terminate(self) -> None:
        """Send SIGTERM, as Kubernetes does, and go on."""
        assert self.process is not None
        self.expected_to_end = True
        self.process.send_signal(signal.SIGTERM)

    def wait(self, within: float = 30.0) -> int:
        """Wait for its end, and return the exit code."""
        assert self.process is not None
        self.expected_to_end = True
        try:
            code = self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {within:g} s; its log ends:\n{self.tail()}") from None
        self.run.note_end_of(self.identity)
        return code

    def kill9(self) -> None:
        """Kill the whole process group, as a lost machine would."""
        assert self.process is not None
        self.expected_to_end = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)
        self.run.note_end_of(self.identity)

    def alive(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(
                f"ended with exit code {self.process.returncode}; its log ends:\n{self.tail()}"
            )
        return True

    @property
    def identity(self) -> str:
        """As the recording handler writes it: name:pid."""
        assert self.process is not None
        return f"{self.config.get('name', self.config['kafka']['group_id'])}:{self.process.pid}"

    # ---- HTTP ----

    @property
    def order_token(self) -> str:
        """What it takes in place of http.token; empty: it never listened."""
        files = Path(self.config["checkpoint"]["directory"]).glob("order-token-*")
        return next((file.read_text() for file in files), "")

    @property
    def url(self) -> str | None:
        """None: it does not listen yet."""
        lines = self.logged("http_listening")
        return f"http://127.0.0.1:{lines[0]['port']}" if lines else None

    def get(self, path: str) -> httpx.Response | None:
        """None: nothing answers."""
        if self.url is None:
            return None
        try:
            return plain_http.get(self.url + path, timeout=5)
        except httpx.TransportError:
            return None

    def ready(self) -> bool:
        answer = self.get("/readyz")
        return answer is not None and answer.status_code == 200

    def healthy(self) -> bool:
        answer = self.get("/healthz")
        return answer is not None and answer.status_code == 200

    def status(self) -> dict[str, Any]:
        answer = self.get("/api/status")
        assert answer is not None, f"no status; the log ends:\n{self.tail()}"
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def table(self, name: str) -> dict[str, Any]:
        """The status of one table; empty when the worker has not met it."""
        found = [table for table in self.status()["tables"] if table["table"] == name]
        return found[0] if found else {}

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's series that carry these labels."""
        answer = self.get("/metrics")
        assert answer is not None
        total = 0.0
        for line in answer.text.splitlines():
            series, _, value = line.rpartition(" ")
            if series.split("{")[0] == name and all(
                f'{key}="{text}"' in series for key, text in labels.items()
            ):
                total += float(value)
        return total

    # ---- logs ----

    def log_lines(self) -> list[dict[str, Any]]:
        """The log since the last start; a line that is no JSON stands under the event `unstructured`."""
        if not self._log.exists():
            return []
        with self._log.open("rb") as log:
            log.seek(self._log_begin)
            lines = log.read().splitlines()
        found = []
        for line in lines:
            try:
                found.append(json.loads(line))
            except ValueError:
                found.append({"event": "unstructured", "text": line.decode(errors="replace")})
        return found

    def logged(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.log_lines() if line.get("event") == event]

    def spark_pid(self, within: float = 60.0) -> int:
        """The process of its Spark, which starts beside it."""
        [started] = eventually(
            lambda: self.logged("spark_started")[:1], within=within, what="Spark's start", every=0.1
        )
        return int(started["pid"])

    def log_text(self) -> str:
        return "\n".join(json.dumps(line) for line in self.log_lines())

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])
