"""Which fetched offsets of a partition are finished, and how far a commit may go.

Workers only flip a flag in a run of offsets that were fetched together. One thread advances the position (the
design of Decaton's OutOfOrderCommitControl). Only fetched offsets are tracked. So transaction markers,
aborted records and compacted offsets do not delay the commit (as in Parallel Consumer's PartitionState)."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from operator import attrgetter, itemgetter

from sortedcontainers import SortedDict

from offsets.finished import FinishedMap, Window
from offsets.run import Record, Run
from offsets.types import Checkpoint, Mark, OffsetRange, joined


class OffsetTracker:
    """The offsets of one partition during one assignment. A new assignment (epoch) gets its own tracker.

    >>> tracker = OffsetTracker()
    >>> run = tracker.register([10, 11, 12, 14])
    >>> run.finish([10, 12])

    >>> tracker.checkpoint()[:2]
    (11, (OffsetRange(first=12, end=14),))
    >>> run.finish([11, 14])
    >>> tracker.checkpoint()[:2]
    (15, ())
    """

    def __init__(
        self,
        start: int | None = None,
        restored: Iterable[OffsetRange] = (),
        finished_map: FinishedMap | None = None,
    ) -> None:
        """`start`: the offset at which fetching starts, None if only the broker knows it (earliest, latest).

        `restored`: ranges beyond it that an earlier worker finished. `finished_map`: the map for the flags,
        which outlives the process."""
        # Guards the structure below. Flags inside a run are flipped without it.
        self._lock = threading.Lock()
        self._open: SortedDict = SortedDict()  # run.start -> Run with unfinished offsets, at the last look
        self._done: SortedDict = SortedDict()  # first -> end of finished ranges above the lowest open run
        # Ascending and separate. Replaced, never modified.
        self._restored = joined([r] for r in sorted(restored) if start is None or r.end > start)
        self._high = start  # the next offset to expect; None before the first
        self._fresh = max([r.end for r in self._restored], default=-1)
        self._registered = 0  # offsets so far
        self._passed: int | None = None  # start of a run: those before it are complete
        self._map = finished_map
        self._window: Window | None = finished_map.window() if finished_map is not None else None

    @property
    def next_offset(self) -> int | None:
        """The offset after the highest one that was fetched, or is known not to exist."""
        return self._high

    @property
    def fresh_from(self) -> int:
        """From this offset on, nothing was fetched or restored: `register` accepts everything."""
        high = self._high
        return max(self._fresh, -1 if high is None else high)

    def unknown(self, offsets: Sequence[int]) -> list[int]:
        """Return the ascending `offsets` that were not fetched in this assignment or finished before it.

        O(log ranges) each."""
        high, restored = -1 if self._high is None else self._high, self._restored
        ends = [r.end for r in restored]
        found = []
        for offset in offsets:
            place = bisect_right(ends, offset)  # the first range that could contain it
            if offset >= high and (place == len(restored) or offset < restored[place].first):
                found.append(offset)
        return found

    def register(self, offsets: Sequence[int]) -> Run:
        """Record that these offsets, ascending and `unknown`, were fetched. One thread. 0.03 us an offset."""
        with self._lock:
            start = offsets[0] if self._high is None else self._high
            if offsets[0] < start:
                raise ValueError(
                    f"offset {offsets[0]} follows {start - 1}: register accepts what `unknown` returns"
                )
            run = Run(start, offsets, self._window)
            run.before = self._registered
            self._registered += len(offsets)
            self._open[start] = run
            self._high = run.end
            return run

    def reach(self, offset: int) -> None:
        """Record that nothing more exists below `offset`: the partition's end, or refetched known offsets."""
        with self._lock:
            if self._high is None:
                self._high = offset
            elif offset > self._high:
                self._add_done(self._high, offset)
                self._high = offset

    def finish(self, offsets: Iterable[int]) -> None:
        """Mark fetched offsets as finished, in any run; ignore others. O(log runs) each."""
        with self._lock:
            for offset in offsets:
                place = self._open.bisect_right(offset) - 1
                if place >= 0:
                    run = self._open.peekitem(place)[1]
                    if run.holds(offset):
                        run.finish((offset,))

    def has(self, run: Run) -> bool:
        """Whether it made this run, of which a record is not finished. Any thread, without a lock."""
        return self._open.get(run.start) is run

    def finish_records(self, records: Iterable[Record], offset_of: Callable[[Record], int]) -> None:
        """The same, for records with these offsets."""
        self.finish(map(offset_of, records))

    def checkpoint(self) -> Checkpoint | None:
        """Return what may be committed: everything below the first unfinished offset, and ranges beyond.

        It contains an offset that finished after a lower one only together with that one. None before
        anything is known. O(runs that were open at the last call + ranges)."""
        return checkpoints([self])[0]

    @property
    def unfinished(self) -> int:
        with self._lock:
            return sum(run.unfinished for run in self._open.values())

    @property
    def head(self) -> int | None:
        """The first fetched offset that is not finished, or None. O(runs completed since)."""
        with self._lock:
            head = self._head()
            return None if head is None else head[0]

    def is_unfinished(self, offset: int) -> bool:
        """Whether the offset was fetched and is not finished. O(log runs)."""
        with self._lock:
            place = self._open.bisect_right(offset) - 1
            return place >= 0 and bool(self._open.peekitem(place)[1].is_unfinished(offset))

    def ahead(self, enough: int) -> int:
        """Return how many offsets were fetched with the first unfinished one and since; 0: all finished.

        If the result is below `enough`, it may be too high, and costs O(1)."""
        with self._lock:
            if not self._open:
                return 0
            most: int = self._registered - self._open.peekitem(0)[1].before
            if most < enough:
                return most
            head = self._head()
            return 0 if head is None else self._registered - head[1]

    def _head(self) -> tuple[int, int] | None:
        """Return the first unfinished offset, and how many offsets were fetched before its run."""
        for start in self._open.irange(self._passed):  # earlier runs are complete, and stay so
            run = self._open[start]
            first = run.first_unfinished()
            self._passed = start
            if first is not None:
                return first, run.before
        return None

    @property
    def window(self) -> str | None:
        """The window of the map that continues from this tracker's checkpoints, or None."""
        window = self._window
        return None if window is None or window.ended else window.name

    def sending(self, mark: Mark) -> None:
        """Record a mark: this commit of a checkpoint will now be sent to Kafka."""
        if self._window is not None:
            self._window.note(mark)

    def end(self) -> None:
        """End the assignment: only its last checkpoint counts from now on."""
        with self._lock:
            self._map = None
            if self._window is not None:
                self._window.end()

    def _move(self) -> None:
        """Move the unfinished offsets to the last segment of the map, in one of its windows."""
        if self._map is None:
            return
        if self._window is None or self._window.ended:
            self._window = self._map.window(() if self._window is None else self._window.marks)
        if self._window is not None:
            self._window.stay()
            for run in self._open.values():
                run.move(self._window)

    def _checkpoint(
        self, position: int | None, looked: Mapping[Run, Sequence[OffsetRange]]
    ) -> Checkpoint | None:
        if position is None:
            return None
        ahead = self._ahead(position, looked)
        # It finished since the look, or an earlier worker finished what comes next.
        if ahead and ahead[0].first <= position:
            position = ahead.pop(0).end
        return Checkpoint(position, tuple(ahead))

    def _settle(self) -> int | None:
        """Remove complete runs, and shrink nearly complete ones. Returns the offset to commit."""
        for run in self._open.values():
            run.shrink(self._window)
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
        """Add a finished range, joined with its neighbours, so that a long stretch is one entry."""
        place = self._done.bisect_left(first)
        if place > 0:
            before, before_end = self._done.peekitem(place - 1)
            if before_end == first:
                first = before
                del self._done[before]
        after_end = self._done.pop(end, None)
        self._done[first] = end if after_end is None else after_end

    def _ahead(self, position: int, looked: Mapping[Run, Sequence[OffsetRange]]) -> list[OffsetRange]:
        """Return finished ranges beyond the position, ascending and joined. `looked`: those of open runs."""
        pieces: list[Sequence[OffsetRange]] = [[OffsetRange(first, end)] for first, end in self._done.items()]
        pieces += [its for run in self._open.values() if (its := looked[run])]
        pieces += [[restored] for restored in self._restored]
        pieces.sort(key=itemgetter(0))
        ranges = joined(pieces)
        return ranges[bisect_right(ranges, position, key=itemgetter(1)) :]


def checkpoints(trackers: Sequence[OffsetTracker], *, move: bool = False) -> list[Checkpoint | None]:
    """Return what may be committed of each partition now (see `OffsetTracker.checkpoint`).

    `move`: also move the unfinished offsets to the last segment of the map (see `FinishedMap.turn`).

    An offset that finished after an earlier registered one, in any partition, is included only together with
    that one. This matters for tables whose statements arrive in another partition."""
    with ExitStack() as locks:  # no other thread locks two of them
        for tracker in trackers:
            locks.enter_context(tracker._lock)
        positions = [tracker._settle() for tracker in trackers]
        if move:
            for tracker in trackers:
                tracker._move()
        runs = [run for tracker in trackers for run in tracker._open.values()]
        # From the last to the first: offsets that finished in order are never seen without the earlier ones.
        runs.sort(key=attrgetter("number"), reverse=True)
        looked = {run: run.finished_ranges() for run in runs}
        return [t._checkpoint(position, looked) for t, position in zip(trackers, positions, strict=True)]
