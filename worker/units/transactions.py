"""Where the source's transactions begin in a partition, for `batch.transactions: whole`."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from collections.abc import Sequence

from worker.formats.decoding import transactions_of
from worker.formats.interface import Format, Record


class Transactions:
    """The borders between the transactions of one partition: offsets at which one begins, or after which one
    has ended. A source writes its transactions one after the other. So two records belong to the same one if
    no border is after the first and up to the second."""

    def __init__(self, format_: Format) -> None:
        self._format = format_
        # The fetcher's own.
        self._open: str | None = None
        self._next = -1
        self.in_use = False
        """The partition has had records of a table with whole transactions. Also the fetcher's own."""
        # Guards the borders: processors read them, and the fetcher's thread adds and forgets some.
        self._lock = threading.Lock()
        self._borders = array("q")
        self.queued = -1
        """All records before this offset are queued. Guarded by the lock of `Lanes`."""

    def read(self, records: Sequence[Record], committed: int | None) -> int:
        """Find the borders that fetched records show. Returns the offset after the last one. 1 to 5 us each.

        Forgets borders that only concern records before `committed`."""
        found = array("q")
        for record in records:
            offset = record.offset()
            if offset < self._next:  # fetched again
                continue
            self._next = offset + 1
            begins, ends = transactions_of(self._format, record)
            if begins is None or begins not in ("", self._open):
                found.append(offset)
            self._open = self._open if ends == "" else ends
            if self._open is None:
                found.append(offset + 1)
        with self._lock:
            if committed is not None:
                del self._borders[: max(0, bisect_right(self._borders, committed) - 1)]
            self._borders.extend(found)
        return self._next

    def begin(self, following: int | None = None) -> int:
        """Return the last border up to this record, or -1. None: up to the records that may come next."""
        with self._lock:
            place = bisect_right(self._borders, self.queued if following is None else following)
            return self._borders[place - 1] if place else -1
