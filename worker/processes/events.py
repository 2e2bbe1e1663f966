"""What a child process tells the worker at any time: log lines, metrics, and errors that stop the worker."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from handlers.logs import get_logger
from handlers.metrics import HandlerMetrics
from worker.processes.faults import packed, unpacked
from worker.processes.frames import Frames

_METHODS = frozenset({"debug", "info", "warning", "error", "critical"})


class Events:
    """Sends the worker what happens in this process. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # for one message at a time
        self._frames: Frames | None = None
        self._pid = os.getpid()

    def attach(self, frames: Frames) -> None:
        self._frames = frames

    def send(self, *event: Any) -> None:
        if self._frames is None or self.is_copy:  # a copy's line would end up within one of this process
            return
        # Without the worker, this process ends. A line that cannot be sent must not fail its handler.
        with self._lock, contextlib.suppress(Exception):
            self._frames.send(event)

    @property
    def is_copy(self) -> bool:
        """Whether a handler has forked this process. Its connections belong to the other one."""
        return os.getpid() != self._pid

    # -- HandlerMetrics

    def count(self, metric: str, amount: float = 1, **labels: str) -> None:
        self.send("count", metric, amount, labels)

    def observe(self, metric: str, value: float, **labels: str) -> None:
        self.send("observe", metric, value, labels)

    # -- HandlerContext.stop_worker

    def stop_worker(self, error: BaseException) -> None:
        self.send("stop", packed(error))


@dataclass(frozen=True)
class Listener:
    """The worker's end."""

    metrics: HandlerMetrics
    fail: Callable[[BaseException], None]
    """Called with an error that must stop the worker."""
    rebuilt: Callable[[], object]
    """Called when a schema is compiled again."""

    def listen(self, frames: Frames) -> None:
        """Return when the child has ended."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                kind, *rest = frames.receive()
                try:
                    self._take(kind, *rest)
                except Exception as error:  # a child must not stop the worker's listening
                    get_logger("processes").error("event_not_taken", kind=kind, error=str(error))

    def _take(self, kind: str, *rest: Any) -> None:
        match kind:
            case "log":
                name, method, event = rest
                logger = get_logger(name)
                getattr(logger, method if method in _METHODS else "error")(**event)
            case "count":
                metric, amount, labels = rest
                self.metrics.count(metric, amount, **labels)
            case "observe":
                metric, value, labels = rest
                self.metrics.observe(metric, value, **labels)
            case "stop":
                self.fail(unpacked(*rest))
            case "rebuilt":
                self.rebuilt()
