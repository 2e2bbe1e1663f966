"""The processors that wait for work, and which of them watches the timers."""

from __future__ import annotations

from collections.abc import Sequence

from worker.lanes.lane import Lane, Timers


class IdleProcessors:
    """The processors without work. Guarded by the lock of `Lanes`.

    One of them, the watcher, wakes when the next timer is due. The others wait until they are notified. So
    each timer wakes one thread. Whoever takes work while nobody watches notifies another processor.
    """

    def __init__(self, lanes: Sequence[Lane], timers: Timers) -> None:
        self._lanes = lanes
        self._timers = timers
        self._waiting: set[int] = set()  # those that have not been notified yet
        self._watcher: int | None = None

    def wait(self, lane: Lane, now: float) -> None:
        """Let the lane's processor wait until there may be work for it."""
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
        """Notify a processor for each of `units` units that became ready, first those whose own lane has
        work. `stealing`: a processor also takes the work of other lanes."""
        if not units or not self._waiting:
            return
        chosen = [number for number in self._waiting if self._lanes[number].ready]
        if stealing:
            # The watcher comes last, because another processor would have to replace it.
            others = self._waiting.difference(chosen)
            chosen += sorted(others, key=lambda number: number == self._watcher)
            del chosen[units:]
        for number in chosen:
            self._tell(number)

    def timer_set(self, due: float) -> None:
        """A timer was set. If it is now the next one, notify the watcher, or a processor to become it."""
        if self._waiting and due <= self._timers.next_due():
            self._tell(next(iter(self._waiting)) if self._watcher is None else self._watcher)

    def left_for_work(self) -> None:
        """A processor found work. If it was the watcher, another processor must replace it."""
        if self._timers and self._waiting and self._watcher is None:
            self._tell(next(iter(self._waiting)))

    def _tell(self, number: int) -> None:
        self._waiting.discard(number)
        self._lanes[number].condition.notify()
