"""How long a table's batches take, and how many records make a fair turn while other tables wait."""

from __future__ import annotations

import math

_TURN_SECONDS = 0.05
"""A turn while others wait: tables that share the lanes then end at about the same time, however many there
are."""
_DEARER = 1.5
_TOLD_BY_BATCHES, _TOLD_BY_RECORDS = 4, 100
"""So many shorter batches, or such of so many records, tell what a record costs in them: a single one of few
records tells of those."""
QUICK_SECONDS = 0.002
"""Shorter batches tell more of the thread's own pauses than of the handler."""
_WEIGHED = 100
"""Records that a batch needs to tell all about the mean: of fewer it tells that share."""


class Turns:
    """Measured seconds a record. Guarded by the lock of `Lanes`.

    Shorter batches are only fair where they cost nothing: a handler whose calls cost the same whatever they
    hold (a commit, a request) would just make more of them. So the first batches of half the records are
    compared with the longest one, and if a record has become dearer, the table's batches are never shortened
    again.
    """

    __slots__ = ("_last", "_longest", "_mean", "_scales", "_shorter")

    def __init__(self) -> None:
        self._longest = (0, math.inf)  # records of about the longest batch not cut, and seconds of each
        self._shorter = (0, 0, 0.0)  # batches of at most half of them, their records and their seconds
        self._last: float | None = None
        self._mean: float | None = None
        self._scales = True

    def most_records(self, queued: int) -> int | None:
        """The most records of the next batch while other tables wait; None: as many as there are."""
        seconds = self._last
        if seconds is None or not self._scales or queued * seconds <= _TURN_SECONDS:
            return None
        return max(1, int(_TURN_SECONDS / seconds))

    def seconds(self, records: int) -> float:
        """About how long so many records take; infinity: not known, or so quick that they may go first."""
        return math.inf if self._mean is None else records * self._mean

    def ran(self, records: int, seconds: float, *, shortened: bool) -> None:
        """A batch of so many records took so long. `shortened`: it was cut to a turn."""
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
