"""Limits how much Spark does at once."""

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
    """For a merge. See Slots.merging."""
    turn: threading.Lock = field(default_factory=threading.Lock)


class Slots:
    """A number of slots, given in order of arrival. Use `with slots:`. Any thread.

    threading.Semaphore keeps no order. A thread that always has something to merge releases a slot and
    acquires it again, before the thread that waits for it has woken up. A batch with DDL, or a handler's
    second table, waited for minutes that way.

    Among merges, the table whose rows have waited longest goes first. Each handler has few tables here at a
    time. By arrival, one of a hundred tables would get as many turns as a handler's only table."""

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()  # guards the two below
        self._free = count
        self._waiting: deque[_Waiting] = deque()

    @contextmanager
    def merging(self, since: float) -> Iterator[None]:
        """Hold a slot for a merge. `since`: when its oldest rows were received (seconds since 1970)."""
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
                self._next().turn.release()  # passed on, so nobody gets it in between
            else:
                self._free += 1

    def _next(self) -> _Waiting:
        """Merges change places only among themselves, so others do not wait longer."""
        first = self._waiting.popleft()
        if first.since is None:
            return first
        merges = [(each.since, place) for place, each in enumerate(self._waiting) if each.since is not None]
        since, place = min(merges, default=(first.since, 0))
        if since >= first.since:
            return first
        chosen, self._waiting[place] = self._waiting[place], first
        return chosen
