"""When each record was fetched, kept for each poll of a partition."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable

from worker.units.assigned_partition import Assignment

__all__ = ["FetchTimes"]

_POLLS = 4096
"""So many polls of a partition are remembered; of older ones only that they came before these."""


class FetchTimes:
    """The thread that polls notes, processors look."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _polls
        self._polls: dict[Assignment, list[tuple[int, int]]] = {}
        """(last offset, nanoseconds since 1970), both ascending."""

    def note(self, assignment: Assignment, last: int, now: int) -> None:
        """A poll brought records up to this offset."""
        with self._lock:
            polls = self._polls.setdefault(assignment, [])
            if polls and polls[-1][0] >= last:  # it is read anew
                polls.clear()
            polls.append((last, now))
            if len(polls) > _POLLS:
                del polls[: _POLLS // 2]

    def of(self, assignment: Assignment, offset: int, default: int) -> int:
        """When the record was fetched, in nanoseconds since 1970; `default` where that is not known."""
        with self._lock:
            polls = self._polls.get(assignment, ())
            at = bisect_left(polls, (offset, 0))
            return min(polls[at][1], default) if at < len(polls) else default

    def forget(self, assignments: Iterable[Assignment]) -> None:
        """They have left."""
        with self._lock:
            for each in assignments:
                self._polls.pop(each, None)

    def known(self) -> list[Assignment]:
        with self._lock:
            return list(self._polls)
