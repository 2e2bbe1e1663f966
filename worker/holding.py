"""What was routed and the lanes have not taken yet."""

from __future__ import annotations

from collections import deque

from worker.assignment import Assignment
from worker.chunk import Delivery
from worker.lanes import Lanes

__all__ = ["Holding"]


class Holding:
    """Deliveries in their order, each small enough for the bounds. The fetcher's own."""

    def __init__(self, lanes: Lanes, max_records: int, max_bytes: int) -> None:
        self._lanes = lanes
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._held: deque[Delivery] = deque()

    def __bool__(self) -> bool:
        return bool(self._held)

    def add(self, delivery: Delivery) -> bool:
        """Offer it after all that is held. True when the lanes have taken everything."""
        self._held.extend(delivery.pieces(self._max_records, self._max_bytes))
        return self.offer()

    def offer(self) -> bool:
        """True when the lanes have taken everything."""
        while self._held and self._lanes.offer(self._held[0]):
            self._held.popleft()
        return not self._held

    def bound(self, max_records: int, max_bytes: int) -> None:
        """Other bounds from now on, and tables have other home lanes."""
        self._max_records, self._max_bytes = max_records, max_bytes
        for delivery in self._held:
            delivery.recount()

    def leave(self, gone: set[Assignment]) -> None:
        """Forget what belongs to partitions that left."""
        self._held = deque(rest for held in self._held if (rest := held.without(gone)).parts)

    def clear(self) -> None:
        """Forget everything."""
        self._held.clear()
        self._lanes.forget_held()
