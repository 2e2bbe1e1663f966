"""The processors that wait for work, and which of them looks after the timers."""

from __future__ import annotations

from collections.abc import Sequence

from worker.lanes.lane import Lane, Timers


class IdleProcessors:
    """Guarded by the lock of `Lanes`.

    One of them, the watcher, looks again when the next timer is due; the others wait until they are told. So
    a timer wakes one thread, and never none: who takes work while nobody watches tells another to.
    """

    def __init__(self, lanes: Sequence[Lane], timers: Timers) -> None:
        self._lanes = lanes
        self._timers = timers
        self._waiting: set[int] = set()  # those that have not been told to look again
        self._watcher: int | None = None

    def wait(self, lane: Lane, now: float) -> None:
        """Let the lane's processor wait until there may be something for it."""
        timeout = None
        if self._timers and self._watcher is None:
            self._watcher = lane.number
            timeout = self._timers.next_due() - now
        self._waiting.add(lane.number)
        lane.condition.wait(timeout)
        self._waiting.discard(lane.number)
        if self._watcher == lane.number:
            self._watcher = None

    def wake(self, units: int, *, stealing: bool) -> None:
        """So many units became ready: tell as many processors, first those whose own lane has something.
        `stealing`: a processor takes the work of other lanes, too."""
        if not units or not self._waiting:
            return
        chosen = [number for number in self._waiting if self._lanes[number].ready]
        if stealing:
            # The watcher last: another would have to watch in its place.
            others = self._waiting.difference(chosen)
            chosen += sorted(others, key=lambda number: number == self._watcher)
            del chosen[units:]
        for number in chosen:
            self._tell(number)

    def timer_set(self, due: float) -> None:
        """A timer was set: if it is the next one now, somebody must know."""
        if self._waiting and due <= self._timers.next_due():
            self._tell(next(iter(self._waiting)) if self._watcher is None else self._watcher)

    def left_for_work(self) -> None:
        """A processor found work: if it was the watcher, another must be."""
        if self._timers and self._waiting and self._watcher is None:
            self._tell(next(iter(self._waiting)))

    def _tell(self, number: int) -> None:
        self._waiting.discard(number)
        self._lanes[number].condition.notify()
