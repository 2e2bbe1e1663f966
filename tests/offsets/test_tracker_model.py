"""The tracker against a naive model: what exists in the partition, what was fetched, what is finished."""

from __future__ import annotations

import itertools
from bisect import bisect_left

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from offsets import run as run_module
from offsets.metadata import encode
from offsets.run import Run
from offsets.tracker import OffsetTracker
from offsets.types import Checkpoint, OffsetRange

# From one record to the next: mostly side by side, at times a marker between, at times so far that no flags
# are kept for what lies between.
STEPS = st.lists(st.sampled_from([1, 1, 1, 1, 2, 3, 7, 40, 90]), min_size=1, max_size=8)


def ranges_of(offsets: set[int]) -> tuple[OffsetRange, ...]:
    ranges: list[OffsetRange] = []
    for offset in sorted(offsets):
        if ranges and ranges[-1].end == offset:
            ranges[-1] = OffsetRange(ranges[-1].first, offset + 1)
        else:
            ranges.append(OffsetRange(offset, offset + 1))
    return tuple(ranges)


class TrackerAgainstModel(RuleBasedStateMachine):
    """A partition that is read by one worker after the other, each from where the one before it got to."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[int] = []  # the offsets that exist, ascending; the others never come
        self.end = 0  # where the next record may be written
        self.runs: list[tuple[Run, list[int]]] = []
        self.late: list[tuple[Run, list[int]]] = []  # of epochs that are over
        self.committed = -1

    @initialize(start=st.none() | st.integers(0, 50), first=st.integers(0, 60))
    def begin(self, start: int | None, first: int) -> None:
        self.end = first
        self.assign(start, set())

    def assign(self, start: int | None, restored: set[int]) -> None:
        self.tracker = OffsetTracker(start, ranges_of(restored))
        self.start, self.high = start, start
        self.cursor = 0 if start is None else bisect_left(self.log, start)
        self.restored = restored
        self.unfinished: set[int] = set()
        self.late += self.runs
        self.runs = []

    def expected(self) -> Checkpoint | None:
        if self.high is None or self.start is None:
            return None
        covered = set(range(self.start, self.high)) - self.unfinished | self.restored
        position = next(o for o in itertools.count(self.start) if o not in covered)
        return Checkpoint(position, ranges_of({o for o in covered if o > position}))

    @rule(steps=STEPS)
    def poll(self, steps: list[int]) -> None:
        """Up to so many records; those that are missing are written now."""
        while len(self.log) < self.cursor + len(steps):
            self.log.append(self.end + steps[len(self.log) % len(steps)] - 1)
            self.end = self.log[-1] + 1
        offsets = self.log[self.cursor : self.cursor + len(steps)]
        self.cursor += len(steps)
        new = self.tracker.unknown(offsets)
        high = -1 if self.high is None else self.high
        assert new == [o for o in offsets if o >= high and o not in self.restored]
        if self.start is None:
            self.start = offsets[0]
        if new:
            assert new == offsets or offsets[0] < self.tracker.fresh_from
            run = self.tracker.register(new)
            self.runs.append((run, new))
            self.unfinished |= set(new)
            self.high = max(new[-1] + 1, high)
        else:
            self.tracker.reach(offsets[-1] + 1)
            self.high = max(offsets[-1] + 1, high)

    @rule(markers=st.integers(0, 3))
    def end_of_partition(self, markers: int) -> None:
        """Told when everything has been read; transaction markers may lie behind the last record."""
        if self.cursor < len(self.log):
            return
        self.end += markers
        self.tracker.reach(self.end)
        if self.start is None:
            self.start = self.end
        self.high = max(self.end, self.high or 0)

    @rule(back=st.integers(1, 6))
    def fetch_again(self, back: int) -> None:
        """The consumer goes back, but not before where this epoch began."""
        begin = 0 if self.start is None else bisect_left(self.log, self.start)
        self.cursor = max(begin, self.cursor - back)

    @rule(data=st.data(), through_tracker=st.booleans())
    def finish(self, data: st.DataObject, through_tracker: bool) -> None:
        if not self.runs:
            return
        run, offsets = data.draw(st.sampled_from(self.runs))
        chosen = data.draw(st.lists(st.sampled_from(offsets), max_size=12))
        (self.tracker if through_tracker else run).finish(chosen)
        self.unfinished -= set(chosen)

    @rule(data=st.data())
    def finish_everything_but(self, data: st.DataObject) -> None:
        for run, offsets in self.runs:
            kept = data.draw(st.sampled_from([None, *offsets]))
            run.finish([o for o in offsets if o != kept])
            self.unfinished -= {o for o in offsets if o != kept}

    @rule(offsets=st.lists(st.integers(-5, 3000), max_size=10))
    def finish_what_was_not_fetched(self, offsets: list[int]) -> None:
        self.tracker.finish([o for o in offsets if o not in self.unfinished])

    @rule()
    def look(self) -> None:
        self.checkpoint()

    def checkpoint(self) -> Checkpoint | None:
        found = self.tracker.checkpoint()
        assert found == self.expected()
        if found is not None:
            assert found.offset >= self.committed, "a commit never goes back"
            self.committed = found.offset
            encode(found)  # Kafka's metadata takes it
        return found

    @rule()
    def another_worker_goes_on(self) -> None:
        found = self.checkpoint()
        if found is not None:
            self.assign(found.offset, {o for r in found.ahead for o in range(*r)})

    @rule(data=st.data())
    def finish_too_late(self, data: st.DataObject) -> None:
        """A handler of an earlier epoch returns."""
        if self.late:
            run, offsets = data.draw(st.sampled_from(self.late))
            run.finish(offsets)

    @invariant()
    def counts_what_is_unfinished(self) -> None:
        if hasattr(self, "tracker"):
            assert self.tracker.unfinished == len(self.unfinished)

    def teardown(self) -> None:
        if not hasattr(self, "tracker"):
            return
        self.checkpoint()
        for run, offsets in self.runs:
            run.finish(offsets)
        self.unfinished.clear()
        self.checkpoint()


class ShrinkingAtEachLook(TrackerAgainstModel):
    """Runs of a few records are kept as their unfinished offsets, and as fewer, whenever one is finished."""

    def __init__(self) -> None:
        super().__init__()
        self.usual = run_module._WORTH_IT
        run_module._WORTH_IT = 1

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            run_module._WORTH_IT = self.usual


TrackerAgainstModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
ShrinkingAtEachLook.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_the_tracker_equals_the_model = TrackerAgainstModel.TestCase
test_the_tracker_equals_the_model_while_it_shrinks_its_runs = ShrinkingAtEachLook.TestCase
