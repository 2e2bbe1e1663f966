"""How much Spark is asked to do at once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType


@dataclass(eq=False, slots=True)
class _Waiting:
    since: float | None
    """Of a merge: see Slots.merging."""
    turn: threading.Lock = field(default_factory=threading.Lock)


class Slots:
    """So many at once, in the order of their coming; `with slots:`, any thread.

    threading.Semaphore keeps no order: a thread that lets go and comes again at once, as one that merges does
    while there is always something to merge, finds the slot free before the thread that waits for it has
    woken up. A batch with DDL, or a handler's second table, waited for minutes that way.

    Among merges it is the table whose rows have waited longest, whichever of them came first: each handler
    comes with few tables at a time, so one of a hundred tables would get as many turns as one of a single
    table."""

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()  # guards the two below
        self._free = count
        self._waiting: deque[_Waiting] = deque()

    @contextmanager
    def merging(self, since: float) -> Iterator[None]:
        """A slot for a merge; `since`: when the oldest of its rows were received (seconds since 1970)."""
        self._enter(since)
        try:
            yield
        finally:
            self._leave()

    def __enter__(self) -> None:
        self._enter(None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _enter(self, since: float | None) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            waiting = _Waiting(since)
            waiting.turn.acquire()
            self._waiting.append(waiting)
        waiting.turn.acquire()

    def _leave(self) -> None:
        with self._lock:
            if self._waiting:
                self._next().turn.release()  # handed on, so nobody comes in between
            else:
                self._free += 1

    def _next(self) -> _Waiting:
        """Merges change places among themselves, so that nobody else waits longer for their sake."""
        first = self._waiting.popleft()
        if first.since is None:
            return first
        merges = [(each.since, place) for place, each in enumerate(self._waiting) if each.since is not None]
        since, place = min(merges, default=(first.since, 0))
        if since >= first.since:
            return first
        chosen, self._waiting[place] = self._waiting[place], first
        return chosen
