"""Routed records that the lanes have not accepted yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from worker.configuration import Configuration
from worker.lanes.lanes import Lanes
from worker.partitions.stage import Stage
from worker.units.assigned_partition import Assignment
from worker.units.chunk import Chunk
from worker.units.delivery import Delivery
from worker.units.unit import Unit


class Backlog(Stage):
    """Deliveries in their order, each small enough for the bounds. The fetcher's own, except `parts`."""

    def __init__(self, lanes: Lanes, max_records: int, max_bytes: int) -> None:
        self._lanes = lanes
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._waiting: deque[Delivery] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, delivery: Delivery) -> bool:
        """Offer the delivery after the pending ones. Returns True if the lanes have accepted everything."""
        self._waiting.extend(delivery.pieces(self._max_records, self._max_bytes))
        return self.offer()

    def offer(self) -> bool:
        """Offer the pending deliveries. Returns True if the lanes have accepted everything."""
        while self._waiting and self._lanes.offer(self._waiting[0]):
            self._waiting.popleft()
        return not self._waiting

    def parts(self) -> list[tuple[Unit, Chunk]]:
        """The pending chunks with their units. Any thread. What is no longer here is in the lanes."""
        return [part for delivery in tuple(self._waiting) for part in delivery.parts]

    def adopt(self, now: Configuration) -> None:
        self.bound(now.lanes.max_records, now.lanes.max_bytes)

    def bound(self, max_records: int, max_bytes: int) -> None:
        """Use other bounds and home lanes from now on. Cuts the pending deliveries to fit, and offers them at
        once."""
        self._max_records, self._max_bytes = max_records, max_bytes
        held = tuple(self._waiting)
        for delivery in held:
            delivery.recount()
        self._waiting = deque(piece for each in held for piece in each.pieces(max_records, max_bytes))
        self.offer()

    def revoked(self, gone: Collection[Assignment]) -> None:
        self._waiting = deque(rest for each in self._waiting if (rest := each.without(set(gone))).parts)

    def clear(self) -> None:
        """Forget everything."""
        self._waiting.clear()
        self._lanes.forget_refused()
