"""How long a table's batches take, and how many records make a fair turn while other tables wait."""

from __future__ import annotations

import math

__all__ = ["Turns"]

_TURN_SECONDS = 0.05
"""A turn while others wait: tables that share the lanes then end at about the same time, however many there
are."""
_DEARER = 1.5
_SAMPLE = 0.002
"""Shorter batches tell more of the thread's own pauses than of the handler."""
_WEIGHED = 100
"""Records that a batch needs to tell all about the mean: of fewer it tells that share."""


class Turns:
    """Measured seconds a record. Guarded by the lock of `Lanes`.

    Shorter batches are only fair where they cost nothing: a handler whose calls cost the same whatever they
    hold (a commit, a request) would just make more of them. So the first shorter batches are compared with
    the longest ones, and if a record has become dearer, the table's batches are never shortened again.
    """

    __slots__ = ("_best", "_last", "_mean", "_scales")

    def __init__(self) -> None:
        self._best = math.inf
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
        if seconds < _SAMPLE:
            self._last = self._mean = None
            return
        each = seconds / max(1, records)
        if shortened and each > _DEARER * self._best:
            self._scales = False
        if not shortened:
            self._best = min(self._best, each)
        self._last = each
        mean = self._mean
        self._mean = each if mean is None else mean + (each - mean) * min(1.0, records / _WEIGHED)
