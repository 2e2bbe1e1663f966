"""The workers of a storm: started, ended, frozen, and started again when they end by themselves."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from integration.process import WorkerProcess, eventually

from storm.judge import Judge

__all__ = ["SESSION", "StormWorker"]

SESSION = 8.0
"""Seconds after which the group throws a silent member out."""
_HERE = Path(__file__).parent
_PATIENCE = 120.0
_AGAIN = 1.0


class StormWorker:
    """One worker that is there all the time, whatever process it is: a Deployment's pod.

    A process that ends by itself is started again after a second, and told of in `surprises`. Whoever ends,
    freezes or starts it does that inside of `held`.
    """

    def __init__(self, folder: Path, config: dict[str, Any], judge: Judge) -> None:
        self.name = folder.name
        self.judge = judge
        self.process = WorkerProcess(folder, config, judge)
        self.process.environment["PYTHONPATH"] = str(_HERE)
        self.topics: list[str] = config["kafka"]["topics"]
        self.state = Path(config["checkpoint"]["directory"])
        self.processes: int = config["lanes"].get("processes", 0)
        self.surprises: list[str] = []
        self._lock = threading.RLock()  # guards the process against two who would end or start it
        self._over = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name=f"keeper of {self.name}", daemon=True)

    @property
    def pid(self) -> int:
        assert self.process.process is not None
        return self.process.process.pid

    @property
    def group(self) -> str:
        found: str = self.process.config["kafka"]["group_id"]
        return found

    def start(self) -> None:
        self.process.start(ready=False)
        self._keeper.start()

    @contextmanager
    def held(self) -> Iterator[StormWorker]:
        """Nobody else ends or starts it meanwhile; at the end it runs."""
        with self._lock:
            self._look()
            try:
                yield self
            finally:
                if not self._runs() and not self._over.is_set():
                    self.process.start(ready=False)

    def kill(self) -> None:
        """SIGKILL, to whatever it has started, too."""
        self.process.kill9()

    def drain(self) -> None:
        """SIGTERM, and wait for its end."""
        assert self.process.process is not None
        self.process.terminate()
        # Its own `shutdown_timeout` and last resort are shorter.
        code = self.process.wait(_PATIENCE)
        if code not in (0, 1, -signal.SIGTERM):
            self.surprises.append(f"{self.name} ended with {code} after SIGTERM")

    def start_again(self) -> None:
        if not self._runs():
            self.process.start(ready=False)

    def wait_ready(self, within: float = _PATIENCE) -> None:
        eventually(lambda: self._runs() and self.process.ready(), within=within, what=f"{self.name} ready")

    def freeze(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after so many seconds. Returns when it knows what it has missed."""
        os.kill(self.pid, signal.SIGSTOP)
        time.sleep(min(seconds, 0.1))  # it has written what it began
        if seconds > SESSION / 2:  # its last heartbeat is some time ago
            self.judge.frozen(self.process.identity)
        time.sleep(max(seconds - 0.1, 0))
        lost = len(self.process.logged("partitions_lost"))
        self.judge.wakes(self.process.identity)
        os.kill(self.pid, signal.SIGCONT)
        if seconds > SESSION:
            with contextlib.suppress(AssertionError):  # it had none, or nobody was there to throw it out
                eventually(
                    lambda: len(self.process.logged("partitions_lost")) > lost or not self._runs(),
                    within=15,
                    every=0.2,
                )

    def kill_child(self, number: int) -> None:
        """SIGKILL to one of its child processes, if there is one."""
        for child in self._children(number):
            child.kill()
            _until_gone(child)
            self.judge.note_end_of(f"{self.process.identity}/{child.pid}")

    def stop_child(self, number: int, seconds: float) -> None:
        """SIGSTOP to one of its child processes, and SIGCONT after so many seconds, if it still is there."""
        for child in self._children(number):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.suspend()
                time.sleep(seconds)
                child.resume()

    def _children(self, number: int) -> list[psutil.Process]:
        """One of them, or none."""
        if not self._runs():
            return []
        own = psutil.Process(self.pid)
        found = [each for each in own.children() if _is_child(each, own)]
        return [found[number % len(found)]] if found else []

    def end(self) -> int | None:
        """For good: drained; its exit code. None: it had to be killed."""
        with self._lock:
            self._look()
            self.wait_ready()  # a signal before that finds nobody who could drain
            self._over.set()
            self.process.terminate()
            try:
                return self.process.wait(_PATIENCE)
            except AssertionError:
                self.process.kill9()
                return None

    def last_said(self) -> list[str]:
        """Its last warnings and errors, oldest first."""
        return self._last_said("warning", "error", "critical")[-8:]

    def _last_said(self, *levels: str) -> list[str]:
        lines = [each for each in self.process.log_lines() if each.get("level") in levels]
        return [str({k: v for k, v in line.items() if k not in ("level", "logger")}) for line in lines]

    def close(self) -> None:
        """Killed, if it still runs."""
        self._over.set()
        with self._lock:
            if self._runs():
                self.process.kill9()

    def _runs(self) -> bool:
        return self.process.process is not None and self.process.process.poll() is None

    def _keep(self) -> None:
        while not self._over.wait(_AGAIN):
            if self._lock.acquire(blocking=False):
                try:
                    self._look()
                finally:
                    self._lock.release()

    def _look(self) -> None:
        if self._runs() or self._over.is_set():
            return
        process = self.process.process
        assert process is not None
        self.judge.note_end_of(self.process.identity)
        why = self._last_said("error", "critical")[-1:]
        self.surprises.append(f"{self.name} ended by itself with {process.returncode}: {why}")
        self.process.start(ready=False)


def _is_child(process: psutil.Process, worker: psutil.Process) -> bool:
    """Whether it runs handlers, and has begun to: forked from the worker, or started later."""
    with contextlib.suppress(psutil.NoSuchProcess):
        command = process.cmdline()
        return command == worker.cmdline() or any("worker.processes.child" in each for each in command)
    return False


def _until_gone(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        while process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.001)
