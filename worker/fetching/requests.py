"""What other threads want done by the one thread that may do it."""

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
    """Taken once: by who does it, or by who does not want it any more."""
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None


class Requests(Stage):
    """One thread serves, any thread asks."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[_Request] = queue.SimpleQueue()

    def ask(self, do: Callable[[], None], *, give_up: Callable[[], bool]) -> bool:
        """Have it done, and wait for that. Raises what it raises; False, when `give_up` said so before it was
        begun: then it is never done."""
        request = _Request(do)
        self._waiting.put(request)
        while not request.done.wait(0.1):
            if give_up() and request.claimed.acquire(blocking=False):
                return False
        if request.error is not None:
            raise request.error
        return True

    def between_polls(self, now: float) -> None:
        """Do what was asked for since."""
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
