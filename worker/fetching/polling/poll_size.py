"""The number of records that the fetcher requests in one poll."""

from __future__ import annotations

from worker.units.delivery import Delivery

_FIRST, _LEAST, MOST_RECORDS = 500, 100, 32_000
"""A full poll doubles the next one: with a backlog, the number of batches determines the cost."""


class PollSize:
    """Grows while the lanes accept everything, and shrinks if they do not. The fetcher's own."""

    def __init__(self, max_records: int, max_bytes: int) -> None:
        """`max_records`: of each lane. `max_bytes`: of all lanes together."""
        self._max_records = max_records
        self._max_bytes = max_bytes
        self.records = min(_FIRST, max_records)
        """The most records of the next poll."""

    def adjust(self, delivery: Delivery, count: int, *, full: bool, fits: bool) -> None:
        """Adjust the size after a delivery of `count` records. `full`: the poll returned as many as it
        requested. `fits`: the lanes have accepted them."""
        size = self.records
        if not fits:
            size = max(_LEAST, size // 2)
        elif full:
            size = min(MOST_RECORDS, size * 2)
        # Half a lane's room, if the next poll's records are distributed over the lanes as these were.
        busiest = max(delivery.records.values()) / count
        average = delivery.bytes / count
        most = min(self._max_records / 2 / busiest, self._max_bytes / 4 / average)
        self.records = max(1, min(size, int(most)))
