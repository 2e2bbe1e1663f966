"""A run that is nearly finished is kept as what is unfinished of it, whatever threads finish meanwhile."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import overload

import pytest
from traced_memory import memory_of_trackers

import offsets.run
from offsets.run import Run
from offsets.tracker import OffsetTracker
from offsets.types import Checkpoint, OffsetRange

SIZE = 16_000


def but(*kept: int, size: int = SIZE) -> list[int]:
    return [offset for offset in range(size) if offset not in kept]


def test_a_run_of_which_one_record_is_unfinished_takes_less_than_a_kilobyte() -> None:
    runs = 50
    tracker = OffsetTracker(0)
    with memory_of_trackers() as memory:
        for first in range(0, runs * SIZE, SIZE):
            run = tracker.register(range(first, first + SIZE))
            run.finish(range(first, first + SIZE - 1))
            tracker.checkpoint()
        del run
        used = memory()
    assert used < runs * 1_000
    found = tracker.checkpoint()
    assert found is not None
    assert (found.offset, len(found.ahead)) == (SIZE - 1, runs - 1)


@pytest.mark.parametrize("step", [1, 50], ids=["all that came", "far apart"])
def test_what_is_left_of_a_run_that_was_shrunk_is_finished_as_before(step: int) -> None:
    tracker = OffsetTracker(0)
    came = range(0, 2_000 * step, step)
    run = tracker.register(came)
    end = came[-1] + 1
    kept = [came[0], came[700], came[701], came[-1]]
    run.finish([offset for offset in came if offset not in kept])
    for _ in range(2):  # the second look remembers the first one's ranges
        assert tracker.checkpoint() == Checkpoint(0, _between([0, *kept[1:], end - 1, end]))
    assert tracker.unfinished == 4
    run.finish(came[1:700])  # again
    run.finish_records(came[702:-1], int)
    assert tracker.unfinished == 4
    run.finish([kept[1]])
    assert tracker.checkpoint() == Checkpoint(0, _between([0, *kept[2:], end - 1, end]))
    tracker.finish([kept[0], came[5]])
    assert tracker.checkpoint() == Checkpoint(kept[2], _between([kept[2], kept[3], end]))
    run.finish([kept[3]])
    assert tracker.checkpoint() == Checkpoint(kept[2], (OffsetRange(kept[2] + 1, end),))
    run.finish_records([str(kept[2])], int)
    assert tracker.checkpoint() == Checkpoint(end)
    assert tracker.unfinished == 0


def _between(unfinished: Sequence[int]) -> tuple[OffsetRange, ...]:
    """The ranges between these offsets, up to the last, which is the run's end."""
    return tuple(
        OffsetRange(before + 1, after) for before, after in pairwise(unfinished) if after > before + 1
    )


class Interrupted(Sequence[int]):
    """Offsets; while a thread goes through them another looks."""

    def __init__(self, offsets: list[int], after: int, look: Callable[[], object]) -> None:
        self.offsets = offsets
        self.after = after
        self.look = look

    def __iter__(self) -> Iterator[int]:
        for place, offset in enumerate(self.offsets):
            if place == self.after:
                self.look()
            yield offset
        if self.after == len(self.offsets):
            self.look()

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[int]: ...
    def __getitem__(self, place: int | slice) -> int | Sequence[int]:
        return self.offsets[place]

    def __len__(self) -> int:
        return len(self.offsets)


@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_what_a_thread_finishes_while_the_flags_are_replaced_counts(after: int) -> None:
    tracker = OffsetTracker(0)
    run = tracker.register(range(SIZE))
    run.finish(but(3, 5, 7, 9))
    run.finish(Interrupted([5, 7, 9], after, tracker.checkpoint))
    assert tracker.checkpoint() == Checkpoint(3, (OffsetRange(4, SIZE),))
    assert tracker.unfinished == 1


@pytest.mark.parametrize("when", ["before the copy", "after the copy", "when replaced"])
def test_what_is_finished_between_two_steps_of_replacing_the_flags_counts(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = OffsetTracker(0)
    run = tracker.register(range(SIZE))
    run.finish(but(3, 5))
    flags = offsets.run._Flags
    list_unfinished, finished = flags.unfinished, flags.finished

    def unfinished(self: offsets.run._Flags) -> list[int]:
        if when == "before the copy":
            run.finish([5])
        found = list_unfinished(self)
        if when == "after the copy":
            run.finish([5])
        return found

    def is_finished(self: offsets.run._Flags, offset: int) -> bool:
        if when == "when replaced":
            run.finish([5])
        return finished(self, offset)

    monkeypatch.setattr(flags, "unfinished", unfinished)
    monkeypatch.setattr(flags, "finished", is_finished)
    assert tracker.checkpoint() == Checkpoint(3, (OffsetRange(4, SIZE),))
    assert tracker.unfinished == 1


@pytest.fixture
def quick_switches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Threads take turns after a few instructions, and runs are shrunk as soon as anything is finished."""
    monkeypatch.setattr(offsets.run, "_WORTH_IT", 1)
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("quick_switches")
def test_no_flip_of_any_thread_is_lost_however_often_flags_are_replaced() -> None:
    threads, size, rounds = 4, 40, 1_000
    tracker = OffsetTracker(0)
    runs: list[Run] = [
        tracker.register(range(first, first + size)) for first in range(0, rounds * size, size)
    ]
    begin = threading.Barrier(threads + 1)

    def work(number: int) -> None:
        begin.wait()
        for place, run in enumerate(runs):
            mine = range(place * size + number, (place + 1) * size, threads)
            run.finish(mine[:2])
            run.finish_records(mine[2:], int)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    begin.wait()
    while any(worker.is_alive() for worker in workers):
        tracker.checkpoint()
    assert tracker.checkpoint() == Checkpoint(rounds * size)
    assert tracker.unfinished == 0
