"""Which fetched offsets of a partition are finished, and how far a commit may go.

Workers only flip a flag in a run of offsets that were fetched together; one thread moves the mark (the design
of Decaton's OutOfOrderCommitControl). Only what was fetched is tracked, so transaction markers, aborted
records and compacted offsets, which never come, do not hold the commit back (as in Parallel Consumer's
PartitionState).
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter

from sortedcontainers import SortedDict

from offsets.types import Checkpoint, OffsetRange

__all__ = ["OffsetTracker", "Run"]

_UNFINISHED, _FINISHED = 0, 1
_FINISHED_FLAGS = re.compile(rb"\x01+")
# A run with gaps holds a flag for each offset of its span while that is at most so many times its records.
_DENSE_SPAN = 16


class Run:
    """Offsets that were fetched together, ascending. It covers all offsets from `start` up to `end`.

    `start` is where the run before it ended: what lies between and never came counts as finished.
    """

    __slots__ = ("_first", "_flags", "_sparse", "end", "start")

    def __init__(self, start: int, offsets: Sequence[int]) -> None:
        first, last, count = offsets[0], offsets[-1], len(offsets)
        self.start = start
        self.end = last + 1
        self._first = first
        self._sparse: tuple[int, ...] | None = None
        span = last + 1 - first
        if span == count:
            self._flags = bytearray(count)
        elif span <= _DENSE_SPAN * count:
            self._flags = bytearray(b"\1") * span
            for offset in offsets:
                self._flags[offset - first] = _UNFINISHED
        else:
            self._sparse = tuple(offsets)
            self._flags = bytearray(count)

    def finish(self, offsets: Iterable[int]) -> None:
        """Mark offsets of this run as finished; again does no harm. Any thread. 0.05 us an offset."""
        flags = self._flags
        if self._sparse is not None:
            for offset in offsets:
                flags[bisect_left(self._sparse, offset)] = _FINISHED
            return
        first = self._first
        for offset in offsets:
            flags[offset - first] = _FINISHED

    def holds(self, offset: int) -> bool:
        """Whether the offset was fetched in this run."""
        if self._sparse is None:
            return self._first <= offset < self.end
        place = bisect_left(self._sparse, offset)
        return place < len(self._sparse) and self._sparse[place] == offset

    @property
    def unfinished(self) -> int:
        return self._flags.count(_UNFINISHED)

    @property
    def complete(self) -> bool:
        return _UNFINISHED not in self._flags

    def first_unfinished(self) -> int | None:
        place = self._flags.find(_UNFINISHED)
        if place < 0:
            return None
        return self._offset(place)

    def _offset(self, place: int) -> int:
        return self._first + place if self._sparse is None else self._sparse[place]

    def finished_ranges(self) -> list[OffsetRange]:
        """Ranges without an unfinished offset, ascending and apart; together with the unfinished offsets they
        make up `start` to `end`. 0.4 us a range."""
        if self._sparse is not None:
            return self._between(self._sparse)
        first = self._first
        spans = [(m.start() + first, m.end() + first) for m in _FINISHED_FLAGS.finditer(self._flags)]
        if first > self.start:  # what lies before the run belongs to its first range, or is one of its own
            if spans and spans[0][0] == first:
                spans[0] = (self.start, spans[0][1])
            else:
                spans.insert(0, (self.start, first))
        return [OffsetRange(begin, end) for begin, end in spans]

    def _between(self, offsets: Sequence[int]) -> list[OffsetRange]:
        ranges, begin = [], self.start
        for place, offset in enumerate(offsets):
            if self._flags[place] == _UNFINISHED:
                if offset > begin:
                    ranges.append(OffsetRange(begin, offset))
                begin = offset + 1
        if self.end > begin:
            ranges.append(OffsetRange(begin, self.end))
        return ranges


class OffsetTracker:
    """The offsets of one partition during one assignment; a new assignment (epoch) gets a tracker of its own.

    >>> tracker = OffsetTracker()
    >>> run = tracker.register([10, 11, 12, 14])
    >>> run.finish([10, 12])
    >>> tracker.checkpoint()
    Checkpoint(offset=11, ahead=(OffsetRange(first=12, end=14),))
    >>> run.finish([11, 14])
    >>> tracker.checkpoint()
    Checkpoint(offset=15, ahead=())
    """

    def __init__(self, start: int | None = None, restored: Iterable[OffsetRange] = ()) -> None:
        """`start`: the offset that fetching begins at, None when only the broker knows it (earliest, latest).

        `restored`: ranges beyond it that an earlier worker finished."""
        # Guards the structure below; flags inside a run are flipped without it.
        self._lock = threading.Lock()
        self._open: SortedDict = SortedDict()  # run.start -> Run with unfinished offsets, as last looked at
        self._done: SortedDict = SortedDict()  # first -> end of finished ranges above the lowest open run
        # Ascending and apart; replaced, never changed.
        self._restored = _joined([r] for r in sorted(restored) if start is None or r.end > start)
        self._high = start  # where the next fetched offset is expected; None before the first
        self._fresh = max([r.end for r in self._restored], default=-1)

    @property
    def next_offset(self) -> int | None:
        """The offset after the highest one fetched, or known not to come."""
        return self._high

    @property
    def fresh_from(self) -> int:
        """From this offset on nothing was fetched or restored: `register` takes everything."""
        high = self._high
        return max(self._fresh, -1 if high is None else high)

    def unknown(self, offsets: Sequence[int]) -> list[int]:
        """Those of the ascending offsets that were neither fetched in this assignment nor finished before it.

        O(log ranges) each."""
        high, restored = -1 if self._high is None else self._high, self._restored
        ends = [r.end for r in restored]
        found = []
        for offset in offsets:
            place = bisect_right(ends, offset)  # the first range that could hold it
            if offset >= high and (place == len(restored) or offset < restored[place].first):
                found.append(offset)
        return found

    def register(self, offsets: Sequence[int]) -> Run:
        """Note that these offsets, ascending and `unknown`, were fetched. One thread. 0.03 us an offset."""
        with self._lock:
            start = offsets[0] if self._high is None else self._high
            if offsets[0] < start:
                raise ValueError(
                    f"offset {offsets[0]} comes after {start - 1}: register takes what `unknown` gives"
                )
            run = Run(start, offsets)
            self._open[start] = run
            self._high = run.end
            return run

    def reach(self, offset: int) -> None:
        """Note that nothing more lies below `offset`: the partition's end, or known ones fetched again."""
        with self._lock:
            if self._high is None:
                self._high = offset
            elif offset > self._high:
                self._add_done(self._high, offset)
                self._high = offset

    def finish(self, offsets: Iterable[int]) -> None:
        """Mark fetched offsets as finished, whichever runs hold them; ignore others. O(log runs) each."""
        with self._lock:
            for offset in offsets:
                place = self._open.bisect_right(offset) - 1
                if place >= 0:
                    run = self._open.peekitem(place)[1]
                    if run.holds(offset):
                        run.finish((offset,))

    def checkpoint(self) -> Checkpoint | None:
        """What may be committed now: everything below the first unfinished offset, and the ranges beyond it.

        None before anything is known. O(runs that were open at the last call + ranges)."""
        with self._lock:
            position = self._settle()
            if position is None:
                return None
            ahead = self._ahead(position)
            # It was finished since the look at it, or an earlier worker finished what comes next.
            if ahead and ahead[0].first <= position:
                position = ahead.pop(0).end
            return Checkpoint(position, tuple(ahead))

    @property
    def unfinished(self) -> int:
        """How many fetched offsets are not finished."""
        with self._lock:
            return sum(run.unfinished for run in self._open.values())

    def finished_ahead(self) -> int:
        """How many offsets beyond the first unfinished one are finished (or never came)."""
        checkpoint = self.checkpoint()
        return 0 if checkpoint is None else sum(end - first for first, end in checkpoint.ahead)

    def _settle(self) -> int | None:
        """Fold complete runs away; the offset to commit."""
        for start in [start for start, run in self._open.items() if run.complete]:
            run = self._open.pop(start)
            self._add_done(run.start, run.end)
        first = self._open.peekitem(0)[1].first_unfinished() if self._open else None
        if first is None and self._open:  # it was finished since the look above
            return self._settle()
        position = self._high if first is None else first
        if position is not None:
            while self._done and self._done.peekitem(0)[1] <= position:
                self._done.popitem(0)
            self._restored = [r for r in self._restored if r.end > position]
        return position

    def _add_done(self, first: int, end: int) -> None:
        """Add a finished range, joined with its neighbours, so that a long stretch costs one entry."""
        place = self._done.bisect_left(first)
        if place > 0:
            before, before_end = self._done.peekitem(place - 1)
            if before_end == first:
                first = before
                del self._done[before]
        after_end = self._done.pop(end, None)
        self._done[first] = end if after_end is None else after_end

    def _ahead(self, position: int) -> list[OffsetRange]:
        """Finished ranges beyond the position, ascending and joined."""
        pieces = [[OffsetRange(first, end)] for first, end in self._done.items()]
        pieces += [ranges for run in self._open.values() if (ranges := run.finished_ranges())]
        pieces += [[restored] for restored in self._restored]
        pieces.sort(key=itemgetter(0))
        joined = _joined(pieces)
        return joined[bisect_right(joined, position, key=itemgetter(1)) :]


def _joined(pieces: Iterable[list[OffsetRange]]) -> list[OffsetRange]:
    """The ranges of pieces that ascend by their first; only the ends of two pieces can touch."""
    joined: list[OffsetRange] = []
    for ranges in pieces:
        if joined and ranges[0].first <= joined[-1].end:
            first, end = joined.pop()
            ranges[0] = OffsetRange(first, max(end, ranges[0].end))
        joined += ranges
    return joined
