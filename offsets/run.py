"""Offsets that were fetched together, and which of them are finished."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from offsets.finished import Window
from offsets.finished.layout import DONE, FINISHED, OPEN, UNFINISHED, finished_ranges
from offsets.types import OffsetRange

# A run with gaps has a flag for each offset of its span, if the span is at most this many times its records.
_DENSE_SPAN = 16
# A run is stored as its unfinished offsets, which take about this many bytes each, once that is a third of
# its flags' size.
_SPARSE_BYTES = 41
_WORTH_IT = 3 * _SPARSE_BYTES
_FEW = 4
"""With at most this many unfinished offsets, a run's ranges are cached between looks."""

_numbers = itertools.count()

Record = TypeVar("Record")


class _Flags(NamedTuple):
    """Which offsets of a run are finished. Replaced as a whole, never modified in parts."""

    flags: bytearray | memoryview
    """In the process's memory, or a place in the map of finished offsets."""
    first: int
    sparse: tuple[int, ...] | None
    """The offsets of the flags. None: `first` and the offsets after it."""

    def finished(self, offset: int) -> bool:
        if self.sparse is None:
            return self.flags[offset - self.first] == FINISHED
        return self.flags[bisect_left(self.sparse, offset)] == FINISHED

    def unfinished(self) -> list[int]:
        """0.05 us an offset, and 0.1 us for each thousand flags."""
        flags = bytes(self.flags)
        found, place = [], flags.find(OPEN)
        while place >= 0:
            found.append(self.first + place if self.sparse is None else self.sparse[place])
            place = flags.find(OPEN, place + 1)
        return found


class Run:
    """Offsets that were fetched together, ascending. The run covers all offsets from `start` up to `end`.

    `start` is the end of the previous run. Offsets in between that never arrived count as finished.

    Any thread flips flags, without a lock. One thread at a time looks at them, and replaces the flags of a
    nearly finished run by fewer ones. No flip is lost. A thread that flipped then checks whether these are
    still the run's flags, and flips again if not. A thread that replaced them then checks what was flipped in
    the old ones meanwhile. Whichever comes first, one of them sees the other's change.

    With a window, the flags are in the map of finished offsets, which outlives the process. Otherwise, or if
    the map accepts no more, they are in this process."""

    __slots__ = ("_flags", "_ranges", "before", "end", "number", "start")

    def __init__(self, start: int, offsets: Sequence[int], window: Window | None = None) -> None:
        first, last, count = offsets[0], offsets[-1], len(offsets)
        self.number = next(_numbers)
        """The order in which runs were made, among those of all partitions."""
        self.before = 0
        """How many offsets its tracker knew when the run was made."""
        self.start = start
        self.end = last + 1
        self._ranges: tuple[int, list[OffsetRange]] | None = None  # cached, with the unfinished count
        span = last + 1 - first
        sparse = None
        if span == count:
            flags = bytearray(OPEN) * count
        elif span <= _DENSE_SPAN * count:
            flags = bytearray(DONE) * span
            for offset in offsets:
                flags[offset - first] = UNFINISHED
        else:
            sparse = tuple(offsets)
            flags = bytearray(OPEN) * count
        self._flags = self._kept(_Flags(flags, first, sparse), window)

    def finish(self, offsets: Sequence[int]) -> None:
        """Mark offsets of this run as finished. Repeating it is harmless. Any thread. 0.05 us an offset."""
        while not self._flip(offsets):
            pass

    def finish_records(self, records: Sequence[Record], offset_of: Callable[[Record], int]) -> None:
        """The same, for records with these offsets."""
        while not self._flip(map(offset_of, records)):
            pass

    def _flip(self, offsets: Iterable[int]) -> bool:
        """Set the flags. Returns False if they were replaced meanwhile, and all must be set again."""
        known = self._flags
        flags, first, sparse = known
        if sparse is None:
            for offset in offsets:
                flags[offset - first] = FINISHED
        else:
            for offset in offsets:
                place = bisect_left(sparse, offset)
                if place < len(sparse) and sparse[place] == offset:  # otherwise it was finished before
                    flags[place] = FINISHED
        return self._flags is known

    def _kept(self, flags: _Flags, window: Window | None) -> _Flags:
        """Store the flags in the window's part of the map, if it accepts them. Returns the flags to use."""
        if window is None:
            return flags
        place = window.keep(self.start, self.end, flags.first, flags.sparse, bytes(flags.flags))
        return flags if place is None else flags._replace(flags=place)

    def move(self, window: Window) -> None:
        """Move the flags to the last segment of the map. Only the looking thread calls this."""
        known = self._flags
        before = bytes(known.flags)
        new = self._kept(known._replace(flags=bytearray(before)), window)
        self._flags = new
        now = bytes(known.flags)
        if now != before:
            for place in reversed(range(len(now))):
                if now[place] != before[place]:
                    new.flags[place] = FINISHED

    def shrink(self, window: Window | None = None) -> None:
        """Keep only the unfinished offsets if they are few. Only the looking thread calls this.

        1 us for 16,000 flags."""
        known = self._flags
        size = len(known.flags)
        weight = size if known.sparse is None else size * _SPARSE_BYTES
        if weight < _WORTH_IT or self.unfinished * _WORTH_IT > weight:
            return
        left = tuple(known.unfinished())
        if not left:
            return
        new = self._kept(_Flags(bytearray(OPEN) * len(left), left[0], left), window)
        fewer = new.flags
        self._flags = new
        # From the last to the first, like a tracker goes through its runs: an earlier one is seen later.
        for place in reversed(range(len(left))):
            if known.finished(left[place]):  # since `left` was made
                fewer[place] = FINISHED

    def is_unfinished(self, offset: int) -> bool:
        """Whether the offset was fetched in this run and is not finished."""
        return self.holds(offset) and not self._flags.finished(offset)

    def holds(self, offset: int) -> bool:
        """Whether the offset was fetched in this run, and may be unfinished."""
        flags, first, sparse = self._flags
        if sparse is None:
            return first <= offset < first + len(flags)
        place = bisect_left(sparse, offset)
        return place < len(sparse) and sparse[place] == offset

    @property
    def unfinished(self) -> int:
        return bytes(self._flags.flags).count(OPEN)

    @property
    def complete(self) -> bool:
        return OPEN not in bytes(self._flags.flags)

    def first_unfinished(self) -> int | None:
        flags, first, sparse = self._flags
        place = bytes(flags).find(OPEN)
        if place < 0:
            return None
        return first + place if sparse is None else sparse[place]

    def finished_ranges(self) -> Sequence[OffsetRange]:
        """Return ranges without an unfinished offset, ascending and separate. With the unfinished offsets,
        they cover `start` to `end`. 0.2 us a range."""
        flags, first, sparse = self._flags
        copy = bytes(flags)  # because a flag that flips between two looks would make ranges touch
        if sparse is None:
            return finished_ranges(self.start, self.end, first, sparse, copy)
        count = copy.count(OPEN)
        known = self._ranges
        if known is not None and known[0] == count:  # flags are flipped in only one direction
            return known[1]
        ranges = finished_ranges(self.start, self.end, first, sparse, copy)
        if len(sparse) <= _FEW:
            self._ranges = (count, ranges)
        return ranges
