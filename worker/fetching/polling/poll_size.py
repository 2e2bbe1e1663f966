"""How many records the fetcher asks for at once."""

from __future__ import annotations

from worker.units.delivery import Delivery

_FIRST, _LEAST, MOST_RECORDS = 500, 100, 32_000
"""A full poll doubles the next one: behind a backlog it is the number of batches that costs."""


class PollSize:
    """Grows while the lanes take everything, shrinks when they do not. The fetcher's own."""

    def __init__(self, max_records: int, max_bytes: int) -> None:
        """`max_records`: of each lane; `max_bytes`: of all together."""
        self._max_records = max_records
        self._max_bytes = max_bytes
        self.records = min(_FIRST, max_records)
        """Of the next poll, at most."""

    def adjust(self, delivery: Delivery, count: int, *, full: bool, fits: bool) -> None:
        """After a delivery of `count` records. `full`: the poll had as many as it asked for; `fits`: the
        lanes have taken them."""
        size = self.records
        if not fits:
            size = max(_LEAST, size // 2)
        elif full:
            size = min(MOST_RECORDS, size * 2)
        # Half a lane's room, if the next poll is spread over the lanes as this one was.
        busiest = max(delivery.records.values()) / count
        average = delivery.bytes / count
        most = min(self._max_records / 2 / busiest, self._max_bytes / 4 / average)
        self.records = max(1, min(size, int(most)))
