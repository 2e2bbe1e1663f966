"""Source times of the changes below an offset, known from a sample of the records."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable

from worker.formats.decoding import source_time
from worker.formats.interface import Format, Record

_SMALL = 65_536
"""Most bytes of a record that is kept here after it is finished."""
_AHEAD_SECONDS = 86_400.0
_MOST = 1_024
"""Most samples kept. Beyond that, every other one is dropped, and new ones are kept half as often."""


class SourceTimes:
    """The source times of one partition during one assignment. To decode few records, it keeps the newest
    one until a time is requested."""

    def __init__(self, format_: Format, clock: Callable[[], float] = time.time) -> None:
        self._format = format_
        self._clock = clock
        self._lock = threading.Lock()  # guards all below but `newest`
        self.newest: Record | None = None
        """The record received last, until its time is read."""
        self._offsets: list[int] = []  # ascending: the records with a known time
        self._highest: list[int] = []  # for each: the latest time up to this record
        self._silent = False  # whether the last decoded record had no usable time
        self._latest: int | None = None
        self._every = self._passed = 1  # keep one of `_every` samples; samples since the last kept one

    def came(self, record: Record) -> None:
        """Add the last record of a poll. Only one thread calls this."""
        self.newest = record
        if len(record.value() or b"") > _SMALL:
            self.latest()

    def latest(self) -> int | None:
        """Return the latest time of the decoded records, in milliseconds since 1970. None: no time is known.
        Any thread. Decodes at most one record."""
        with self._lock:
            self._ask()
            return self._latest

    def below(self, offset: int) -> int | None:
        """Return a time that no record below `offset` exceeds. None: it is unknown. All records below
        `offset` must have been fetched before this call. Any thread.

        Only the newest of the records fetched since the last call is decoded. If the source's times go back
        among them, the result is too early by that difference."""
        with self._lock:
            self._ask()
            place = bisect_left(self._offsets, offset - 1)
            # Positions only grow, so earlier samples are not needed again.
            del self._offsets[: min(place, len(self._offsets) - 1)]
            del self._highest[: len(self._highest) - len(self._offsets)]
            if not self._offsets or (self._silent and self._offsets[-1] < offset - 1):
                return None
            return self._highest[0]

    def restart(self) -> None:
        """Forget all samples, because tracking restarts at another offset. The latest time stays."""
        with self._lock:
            self.newest = None
            self._offsets, self._highest, self._silent = [], [], False

    def _ask(self) -> None:
        record, self.newest = self.newest, None
        if record is None:
            return
        time_ms = source_time(self._format, record)
        if time_ms is not None:
            self._latest = time_ms if self._latest is None else max(time_ms, self._latest)
        # A time in the future is wrong. As the maximum, it would hide all later ones.
        self._silent = time_ms is None or time_ms > (self._clock() + _AHEAD_SECONDS) * 1000
        if time_ms is None or self._silent:
            return
        highest = max(time_ms, self._highest[-1]) if self._highest else time_ms
        if self._offsets and self._passed < self._every:
            self._offsets[-1], self._highest[-1] = record.offset(), highest
            self._passed += 1
            return
        self._offsets.append(record.offset())
        self._highest.append(highest)
        self._passed = 1
        if len(self._offsets) > _MOST:
            del self._offsets[-3::-2], self._highest[-3::-2]
            self._every *= 2
        elif len(self._offsets) < _MOST // 4:
            self._every = 1
