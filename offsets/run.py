"""Offsets that were fetched together, and which of them are finished."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar, cast

from offsets.finished import Window
from offsets.finished.layout import FINISHED, UNFINISHED
from offsets.types import OffsetRange

_UNFINISHED, _FINISHED = UNFINISHED, FINISHED
_OPEN, _DONE = bytes((_UNFINISHED,)), bytes((_FINISHED,))
_STRETCHES = re.compile(re.escape(_DONE) + b"+|" + re.escape(_OPEN) + b"+")
_range = cast("Callable[[tuple[int, int]], OffsetRange]", partial(tuple.__new__, OffsetRange))
"""As `OffsetRange._make`, without a call of Python for each."""
# A run with gaps holds a flag for each offset of its span while that is at most so many times its records.
_DENSE_SPAN = 16
# A run is kept as its unfinished offsets, which take about so many bytes each, as soon as that is a third of
# what its flags take.
_SPARSE_BYTES = 41
_WORTH_IT = 3 * _SPARSE_BYTES
_FEW = 4
"""So many unfinished offsets of a run, and its ranges are remembered from look to look."""

_numbers = itertools.count()

Record = TypeVar("Record")


class _Flags(NamedTuple):
    """Which offsets of a run are finished. Replaced as a whole, never taken apart."""

    flags: bytearray | memoryview
    """Of the process, or a place in the map of finished offsets."""
    first: int
    sparse: tuple[int, ...] | None
    """The offsets of the flags; None: `first` and those that follow it."""

    def finished(self, offset: int) -> bool:
        if self.sparse is None:
            return self.flags[offset - self.first] == _FINISHED
        return self.flags[bisect_left(self.sparse, offset)] == _FINISHED

    def unfinished(self) -> list[int]:
        """0.05 us an offset, and 0.1 us for each thousand flags."""
        flags = bytes(self.flags)
        found, place = [], flags.find(_OPEN)
        while place >= 0:
            found.append(self.first + place if self.sparse is None else self.sparse[place])
            place = flags.find(_OPEN, place + 1)
        return found


class Run:
    """Offsets that were fetched together, ascending. It covers all offsets from `start` up to `end`.

    `start` is where the run before it ended: what lies between and never came counts as finished.

    Flags are flipped by any thread and without a lock; one thread at a time looks, and replaces the flags of
    a run that is nearly finished by fewer. No flip is lost by it: who flipped looks afterwards whether these
    are still the run's flags, and flips again if not; who replaced them looks afterwards what was flipped in
    the old ones meanwhile. Whichever comes first, one of both sees the other's.

    With a window the flags are in the map of finished offsets, which outlives the process; with none, or
    where it takes no more, in this process.
    """

    __slots__ = ("_flags", "_ranges", "before", "end", "number", "start")

    def __init__(self, start: int, offsets: Sequence[int], window: Window | None = None) -> None:
        first, last, count = offsets[0], offsets[-1], len(offsets)
        self.number = next(_numbers)
        """By when it was made, among those of all partitions."""
        self.before = 0
        """How many offsets its tracker knew when it was made."""
        self.start = start
        self.end = last + 1
        self._ranges: tuple[int, list[OffsetRange]] | None = None  # what was found of so few unfinished ones
        span = last + 1 - first
        sparse = None
        if span == count:
            flags = bytearray(_OPEN) * count
        elif span <= _DENSE_SPAN * count:
            flags = bytearray(_DONE) * span
            for offset in offsets:
                flags[offset - first] = _UNFINISHED
        else:
            sparse = tuple(offsets)
            flags = bytearray(_OPEN) * count
        self._flags = self._kept(_Flags(flags, first, sparse), window)

    def finish(self, offsets: Sequence[int]) -> None:
        """Mark offsets of this run as finished; again does no harm. Any thread. 0.05 us an offset."""
        while not self._flip(offsets):
            pass

    def finish_records(self, records: Sequence[Record], offset_of: Callable[[Record], int]) -> None:
        """The same for what has these offsets."""
        while not self._flip(map(offset_of, records)):
            pass

    def _flip(self, offsets: Iterable[int]) -> bool:
        """False: the flags were replaced meanwhile, and all must be flipped again."""
        known = self._flags
        flags, first, sparse = known
        if sparse is None:
            for offset in offsets:
                flags[offset - first] = _FINISHED
        else:
            for offset in offsets:
                place = bisect_left(sparse, offset)
                if place < len(sparse) and sparse[place] == offset:  # else it was finished before
                    flags[place] = _FINISHED
        return self._flags is known

    def _kept(self, flags: _Flags, window: Window | None) -> _Flags:
        """The same flags in the window's part of the map, if it takes them."""
        if window is None:
            return flags
        place = window.keep(self.start, self.end, flags.first, flags.sparse, bytes(flags.flags))
        return flags if place is None else flags._replace(flags=place)

    def move(self, window: Window) -> None:
        """Have the flags in the last segment of the map. The looking thread's; nobody else's."""
        known = self._flags
        before = bytes(known.flags)
        new = self._kept(known._replace(flags=bytearray(before)), window)
        self._flags = new
        now = bytes(known.flags)
        if now != before:
            for place in reversed(range(len(now))):
                if now[place] != before[place]:
                    new.flags[place] = _FINISHED

    def shrink(self, window: Window | None = None) -> None:
        """Keep the unfinished offsets alone if they are few. The looking thread's; nobody else's.

        1 us for 16,000 flags."""
        known = self._flags
        size = len(known.flags)
        weight = size if known.sparse is None else size * _SPARSE_BYTES
        if weight < _WORTH_IT or self.unfinished * _WORTH_IT > weight:
            return
        left = tuple(known.unfinished())
        if not left:
            return
        new = self._kept(_Flags(bytearray(_OPEN) * len(left), left[0], left), window)
        fewer = new.flags
        self._flags = new
        # From the last to the first, as a tracker goes through its runs: an earlier one is seen later.
        for place in reversed(range(len(left))):
            if known.finished(left[place]):  # since `left` was made
                fewer[place] = _FINISHED

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
        return bytes(self._flags.flags).count(_OPEN)

    @property
    def complete(self) -> bool:
        return _OPEN not in bytes(self._flags.flags)

    def first_unfinished(self) -> int | None:
        flags, first, sparse = self._flags
        place = bytes(flags).find(_OPEN)
        if place < 0:
            return None
        return first + place if sparse is None else sparse[place]

    def finished_ranges(self) -> Sequence[OffsetRange]:
        """Ranges without an unfinished offset, ascending and apart; together with the unfinished offsets they
        make up `start` to `end`. 0.2 us a range."""
        flags, first, sparse = self._flags
        if sparse is not None:
            return self._between(flags, sparse)
        # A copy: a flag that flips between two matches would make them touch.
        copy = bytes(flags)
        bounds = list(itertools.accumulate(map(len, _STRETCHES.findall(copy)), initial=first))
        if copy[0] == _FINISHED:
            bounds[0] = self.start  # what lies before the run belongs to its first range
        elif first > self.start:  # or is one of its own
            bounds.insert(0, self.start)
        else:
            del bounds[0]
        return list(map(_range, zip(bounds[::2], bounds[1::2], strict=False)))  # the last may be unfinished

    def _between(self, flags: bytearray | memoryview, offsets: tuple[int, ...]) -> list[OffsetRange]:
        copy = bytes(flags)
        count = copy.count(_OPEN)
        known = self._ranges
        if known is not None and known[0] == count:  # flags are flipped one way only
            return known[1]
        ranges, begin = [], self.start
        for place, offset in enumerate(offsets):
            if copy[place] == _UNFINISHED:
                if offset > begin:
                    ranges.append(OffsetRange(begin, offset))
                begin = offset + 1
        if self.end > begin:
            ranges.append(OffsetRange(begin, self.end))
        if len(offsets) <= _FEW:
            self._ranges = (count, ranges)
        return ranges
