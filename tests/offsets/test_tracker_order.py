"""A checkpoint that is taken while records finish calls none finished without those that finished before it.

Else a restart repeats an earlier change of a table and not the later one, and a row keeps its old state.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, overload

import pytest

import offsets.run
import offsets.tracker
from offsets.run import Run
from offsets.tracker import OffsetTracker, checkpoints
from offsets.types import Checkpoint

CODE = {offsets.run.__file__, offsets.tracker.__file__}
Made = tuple[list[OffsetTracker], list[tuple[Run, list[int]]]]
"""Partitions; what is finished of their runs, in this order."""


class Gated(Sequence[int]):
    """Offsets, each of which waits until it may go."""

    def __init__(self, offsets: list[int], gate: Callable[[], None]) -> None:
        self.offsets = offsets
        self.gate = gate

    def __iter__(self) -> Iterator[int]:
        for offset in self.offsets:
            self.gate()
            yield offset
        self.gate()

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[int]: ...
    def __getitem__(self, place: int | slice) -> int | Sequence[int]:
        return self.offsets[place]

    def __len__(self) -> int:
        return len(self.offsets)


class Lane(threading.Thread):
    """Finishes records of one table in order, a step whenever it is told."""

    def __init__(self, calls: list[tuple[Run, list[int]]]) -> None:
        super().__init__(daemon=True)
        self.calls = calls
        self.go, self.arrived = threading.Semaphore(0), threading.Semaphore(0)
        self.start()
        self.arrived.acquire()  # before its first flip, with the flags of the first run in its hands

    def run(self) -> None:
        for run, its in self.calls:
            run.finish(Gated(its, self._gate))
        self.calls = []
        self.arrived.release()

    def _gate(self) -> None:
        self.arrived.release()
        self.go.acquire()

    def step(self) -> bool:
        """False: it has finished all."""
        if not self.calls:
            return False
        self.go.release()
        self.arrived.acquire()
        return True


def two_polls() -> Made:
    """0 and 3 are of a table that is stuck."""
    tracker = OffsetTracker(0)
    first, second = tracker.register([0, 1, 2]), tracker.register([3, 4])
    first.finish([2])
    return [tracker], [(first, [1]), (second, [4])]


def three_polls_of_one_table() -> Made:
    tracker = OffsetTracker(0)
    runs = [tracker.register([first, first + 1]) for first in (0, 2, 4)]
    return [tracker], [(run, [run.start, run.start + 1]) for run in runs]


def a_poll_of_which_little_is_left() -> Made:
    tracker = OffsetTracker(0)
    run = tracker.register(range(12))
    run.finish([2, 4, 6, 8, 10, 11])
    return [tracker], [(run, [1, 3, 5, 7]), (run, [9])]


def polls_with_gaps() -> Made:
    tracker = OffsetTracker(0)
    first, second = tracker.register([0, 100, 200, 300]), tracker.register([400, 500, 600])
    return [tracker], [(first, [100, 300]), (second, [400, 600])]


def a_statement_of_a_partition_of_its_own() -> Made:
    """It stands between two rows. Each poll has something of a table that is stuck."""
    rows, ddl = OffsetTracker(0), OffsetTracker(0)
    before, statement, after = rows.register([0, 1]), ddl.register([0, 1]), rows.register([2, 3])
    return [rows, ddl], [(before, [1]), (statement, [1]), (after, [3])]


def the_same_looked_at_first() -> Made:
    trackers, calls = a_statement_of_a_partition_of_its_own()
    return trackers[::-1], calls


def a_statement_that_is_all_of_its_partition() -> Made:
    rows, ddl = OffsetTracker(0), OffsetTracker(0)
    before, statement, after = rows.register([0, 1]), ddl.register([0]), rows.register([2])
    return [rows, ddl], [(before, [1]), (statement, [0]), (after, [2])]


def look(
    trackers: list[OffsetTracker], at: int, lane: Lane, steps: int
) -> tuple[list[Checkpoint | None], bool]:
    """Checkpoints; before its line of that number the lane makes its steps. Whether it has so many lines."""
    lines = itertools.count()
    reached = over = False

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal reached, over
        over = over or frame.f_code is OffsetTracker._checkpoint.__code__  # all is looked at
        if over or frame.f_code.co_filename not in CODE:
            return None
        if event == "line" and next(lines) == at:
            reached = True
            for _ in range(steps):
                lane.step()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        found = checkpoints(trackers)
    finally:
        sys.settrace(before)
    return found, reached


def finished(checkpoint: Checkpoint | None, offset: int) -> bool:
    assert checkpoint is not None
    return offset < checkpoint.offset or any(first <= offset < end for first, end in checkpoint.ahead)


@pytest.mark.parametrize(
    "made",
    [
        two_polls,
        three_polls_of_one_table,
        a_poll_of_which_little_is_left,
        polls_with_gaps,
        a_statement_of_a_partition_of_its_own,
        the_same_looked_at_first,
        a_statement_that_is_all_of_its_partition,
    ],
)
def test_a_checkpoint_at_any_moment_calls_nothing_finished_without_what_finished_before_it(
    made: Callable[[], Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every line of the look, and every number of steps that the other thread makes there."""
    monkeypatch.setattr(offsets.run, "_WORTH_IT", 1)  # runs are shrunk as soon as anything is finished
    lengths = [len(its) + 1 for _, its in made()[1]]
    most = sum(lengths) + lengths[0]  # whose flags may be replaced meanwhile: it flips them again
    for steps in range(1, most + 1):
        for at in itertools.count():
            trackers, calls = made()
            order = [
                (next(n for n, each in enumerate(trackers) if run in each._open.values()), offset)
                for run, its in calls
                for offset in its
            ]
            lane = Lane(calls)
            found, reached = look(trackers, at, lane, steps)
            while lane.step():
                pass
            lane.join()
            told = [finished(found[number], offset) for number, offset in order]
            assert told == sorted(told, reverse=True), f"{steps} steps at line {at}: {found}"
            if not reached:
                break
