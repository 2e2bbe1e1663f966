"""Calls that other threads request from the one thread that may make them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from worker.partitions.stage import Stage


@dataclass(slots=True)
class _Request:
    do: Callable[[], None]
    claimed: threading.Lock = field(default_factory=threading.Lock)
    """Taken once: by the thread that runs it, or by the one that no longer wants it."""
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None


class Requests(Stage):
    """One thread serves, any thread asks."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[_Request] = queue.SimpleQueue()

    def ask(self, do: Callable[[], None], *, give_up: Callable[[], bool]) -> bool:
        """Have `do` called, and wait for that. Raises what it raises. Returns False if `give_up` returned
        True before it was started: it is then never called."""
        request = _Request(do)
        self._waiting.put(request)
        while not request.done.wait(0.1):
            if give_up() and request.claimed.acquire(blocking=False):
                return False
        if request.error is not None:
            raise request.error
        return True

    def between_polls(self, now: float) -> None:
        """Run the requested calls."""
        while True:
            try:
                request = self._waiting.get_nowait()
            except queue.Empty:
                return
            if not request.claimed.acquire(blocking=False):
                continue
            try:
                request.do()
            except BaseException as error:
                request.error = error
            request.done.set()
