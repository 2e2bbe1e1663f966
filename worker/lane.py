"""One lane: its queue of ready units and its counters; and the times at which other units become ready."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import deque
from collections.abc import Iterator

from worker.unit import Unit, UnitState
from worker.work import Work

__all__ = ["Lane", "Timers"]


class Lane:
    """Guarded by the lock of `Lanes`."""

    __slots__ = ("busy_seconds", "bytes", "condition", "number", "ready", "records", "running", "since")

    def __init__(self, number: int, lock: threading.Lock) -> None:
        self.number = number
        self.condition = threading.Condition(lock)
        self.ready: deque[Unit] = deque()
        self.records = 0
        """Queued and running, of the units whose home this is."""
        self.bytes = 0
        self.running: Work | None = None
        """What this lane's processor works on, wherever it comes from."""
        self.since = 0.0
        self.busy_seconds = 0.0


class Timers:
    """When units that wait (for a fuller batch, or to try again) are due. Guarded by the lock of `Lanes`."""

    def __init__(self) -> None:
        # An entry whose unit has moved on since stays until its time comes: `due` passes over it.
        self._heap: list[tuple[float, int, Unit]] = []
        self._ticket = itertools.count()

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, unit: Unit) -> None:
        """At `unit.due`."""
        heapq.heappush(self._heap, (unit.due, next(self._ticket), unit))

    def next_due(self) -> float:
        return self._heap[0][0]

    def due(self, now: float) -> Iterator[Unit]:
        """Takes out the units whose time has come."""
        while self._heap and self._heap[0][0] <= now:
            due, _, unit = heapq.heappop(self._heap)
            if unit.due == due and unit.state in (UnitState.WAITING, UnitState.BACKOFF):
                yield unit

    def waiting(self) -> set[Unit]:
        """The units that only wait for a fuller batch."""
        return {unit for _, _, unit in self._heap if unit.state is UnitState.WAITING}
