"""When the changes below an offset happened in their source, as far as a few records tell."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable

from worker.formats.decoding import source_time
from worker.formats.interface import Format, Record

_SMALL = 65_536
"""Bytes of a record that may be kept though it is finished."""
_AHEAD_SECONDS = 86_400.0
_MOST = 1_024
"""So many samples are kept; of more, every other one, and as few from then on."""


class SourceTimes:
    """The times of one partition during one assignment. The newest record is kept until somebody asks, so
    that few are decoded for it."""

    def __init__(self, format_: Format, clock: Callable[[], float] = time.time) -> None:
        self._format = format_
        self._clock = clock
        self._lock = threading.Lock()  # guards all below but `newest`
        self.newest: Record | None = None
        """The record that came last, until its time is asked for."""
        self._offsets: list[int] = []  # ascending: the records that told a time
        self._highest: list[int] = []  # for each: the latest time told up to it
        self._silent = False  # the last record that was asked told none
        self._latest: int | None = None
        self._every = self._passed = 1  # one of so many samples is kept; so many were since the last kept one

    def came(self, record: Record) -> None:
        """The last record of a poll. One thread."""
        self.newest = record
        if len(record.value() or b"") > _SMALL:
            self.latest()

    def latest(self) -> int | None:
        """The latest time that a record has told, in milliseconds since 1970; None: no record has told that
        yet. Any thread; few records are asked."""
        with self._lock:
            self._ask()
            return self._latest

    def below(self, offset: int) -> int | None:
        """No record below this one's offset happened later; None: that is not known. For an offset that was
        told before this call. Any thread.

        Of records that came together only the last tells its time: the source's times may go back between
        them, and then this is early by so much."""
        with self._lock:
            self._ask()
            place = bisect_left(self._offsets, offset - 1)
            # Positions only grow: what is told of before this one is not asked for again.
            del self._offsets[: min(place, len(self._offsets) - 1)]
            del self._highest[: len(self._highest) - len(self._offsets)]
            if not self._offsets or (self._silent and self._offsets[-1] < offset - 1):
                return None
            return self._highest[0]

    def restart(self) -> None:
        """Offsets are counted anew."""
        with self._lock:
            self.newest = None
            self._offsets, self._highest, self._silent = [], [], False

    def _ask(self) -> None:
        record, self.newest = self.newest, None
        if record is None:
            return
        told = source_time(self._format, record)
        if told is not None:
            self._latest = told if self._latest is None else max(told, self._latest)
        # A time to come is a wrong one, and would hide all that follow.
        self._silent = told is None or told > (self._clock() + _AHEAD_SECONDS) * 1000
        if told is None or self._silent:
            return
        highest = max(told, self._highest[-1]) if self._highest else told
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
