"""How long a table's batches take, and how many records make a fair turn while other tables wait."""

from __future__ import annotations

import math

_TURN_SECONDS = 0.05
"""The length of a turn while others wait. Tables that share the lanes then end at about the same time,
however many they are."""
_DEARER = 1.5
_TOLD_BY_BATCHES, _TOLD_BY_RECORDS = 4, 100
"""After 4 shorter batches, or 100 records in them, the cost of a record in shorter batches is known. A single
batch of few records shows nothing."""
QUICK_SECONDS = 0.002
"""The duration of shorter batches depends more on the thread's own pauses than on the handler."""
_WEIGHED = 100
"""The records of a batch that fully determines the mean. A smaller batch counts for its share."""


class Turns:
    """Measured seconds per record. Guarded by the lock of `Lanes`.

    Shorter batches are only fair if they cost nothing. A handler whose calls cost the same whatever their
    size (a commit, a request) would just make more calls. So the first batches of half the records are
    compared with the longest one. If a record has become dearer, the table's batches are never shortened
    again.
    """

    __slots__ = ("_last", "_longest", "_mean", "_scales", "_shorter")

    def __init__(self) -> None:
        self._longest = (0, math.inf)  # about the longest uncut batch: its records, and seconds for each
        self._shorter = (0, 0, 0.0)  # batches of at most half of that, their records and their seconds
        self._last: float | None = None
        self._mean: float | None = None
        self._scales = True

    def most_records(self, queued: int) -> int | None:
        """Return the most records of the next batch while other tables wait; None: all that are queued."""
        seconds = self._last
        if seconds is None or not self._scales or queued * seconds <= _TURN_SECONDS:
            return None
        return max(1, int(_TURN_SECONDS / seconds))

    def seconds(self, records: int) -> float:
        """Estimate the seconds for `records`. Infinity: unknown, or so quick that they may go first."""
        return math.inf if self._mean is None else records * self._mean

    def ran(self, records: int, seconds: float, *, shortened: bool) -> None:
        """Record a batch and its duration. `shortened`: it was cut to a turn."""
        if seconds < QUICK_SECONDS:
            self._last = self._mean = None
            return
        each = seconds / max(1, records)
        if not shortened:
            if records * 2 > self._longest[0]:
                self._longest = (records, each)
        elif records * 2 <= self._longest[0]:
            batches, count, spent = self._shorter
            self._shorter = batches, count, spent = batches + 1, count + records, spent + seconds
            told = batches >= _TOLD_BY_BATCHES or count >= _TOLD_BY_RECORDS
            if told and spent / count > _DEARER * self._longest[1]:
                self._scales = False
        self._last = each
        mean = self._mean
        self._mean = each if mean is None else mean + (each - mean) * min(1.0, records / _WEIGHED)
