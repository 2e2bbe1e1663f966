"""How much Spark is asked to do at once."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType

__all__ = ["Slots"]


class Slots:
    """So many at once, in the order of their coming; `with slots:`, any thread.

    threading.Semaphore keeps no order: a thread that lets go and comes again at once, as one that merges does
    while there is always something to merge, finds the slot free before the thread that waits for it has
    woken up. A batch with DDL, or a handler's second table, waited for minutes that way.
    """

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()  # guards the two below
        self._free = count
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        turn.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()  # handed on, so nobody comes in between
            else:
                self._free += 1
