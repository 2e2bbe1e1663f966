"""Run `binlane run` as a separate process: start, watch and drain it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, Self

import httpx
import msgspec

from worker.local import broker_guard
from worker.observing.status import WorkerStatus

_DRAIN_SECONDS = 90
_START_SECONDS = 120.0
_POLL_SECONDS = 0.05
_read_status = msgspec.json.Decoder(WorkerStatus).decode


class WorkerFailed(RuntimeError):
    """The worker ended by itself, or never served its status. The message contains its last errors."""


class WorkerProcess:
    """Runs `binlane run config` and writes its log to `log`. A context manager: leaving it ends the worker.

    The worker never outlives this process: a guard ends it when this process has ended."""

    def __init__(self, config: Path, log: Path) -> None:
        self._log = log
        self._client = httpx.Client(timeout=5.0, trust_env=False, verify=False)  # plain HTTP
        self.url = ""
        """The URL of its status page; empty before `wait_until_it_serves`."""
        with log.open("wb") as output:
            command = (sys.executable, "-m", "binlane", "run", str(config))
            self._guard, self.pid = broker_guard.guarded(command, _DRAIN_SECONDS, output.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        if self._guard.poll() is None:
            self.drain()

    def wait_until_it_serves(self) -> None:
        """Wait until the worker's status can be requested. Raises WorkerFailed."""
        deadline = time.monotonic() + _START_SECONDS
        while not self.url:
            self.check()
            for event in self._events():
                if event.get("event") == "http_listening":
                    self.url = f"http://127.0.0.1:{event['port']}"
            if time.monotonic() > deadline:
                raise WorkerFailed(
                    f"the worker serves no status after {_START_SECONDS:g} s{self._last_words()}"
                )
            time.sleep(_POLL_SECONDS)

    def status(self) -> WorkerStatus | None:
        """Return its status; None if it does not answer now. Raises WorkerFailed."""
        self.check()
        try:
            response = self._client.get(f"{self.url}/api/status")
            return _read_status(response.content)
        except (httpx.HTTPError, msgspec.DecodeError):
            return None

    def check(self) -> None:
        """Raise WorkerFailed if the worker has ended."""
        code = self._guard.poll()
        if code is not None:
            raise WorkerFailed(f"the worker ended with exit code {code}{self._last_words()}")

    def drain(self) -> int:
        """Send SIGTERM, wait for the end, and return the exit code."""
        broker_guard.end(self._guard)
        return self._guard.wait()

    def _events(self) -> list[dict[str, Any]]:
        """Return the events among the log's complete lines."""
        events = []
        for line in self._log.read_bytes().splitlines():
            try:
                events.append(msgspec.json.decode(line, type=dict[str, Any]))
            except msgspec.DecodeError:
                continue
        return events

    def _last_words(self) -> str:
        told = [event for event in self._events() if event.get("level") in ("error", "critical")][-3:]
        words = "; ".join(f"{event['event']} {event.get('error', '')}".strip() for event in told)
        if not words:
            words = " ".join(self._log.read_text(encoding="utf-8", errors="replace").split()[-40:])
        return f": {words}" if words else ""
