"""What the tracker lets be committed, case by case, and while threads finish records."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator

import pytest
from traced_memory import memory_of_trackers

import offsets.finished.layout
from offsets.metadata import encode
from offsets.run import Run
from offsets.tracker import OffsetTracker
from offsets.types import Checkpoint, OffsetRange


def test_a_finished_record_does_not_let_the_commit_pass_one_before_it() -> None:
    tracker = OffsetTracker(100)
    tracker.register([100, 101]).finish([101])
    assert tracker.checkpoint() == Checkpoint(100, (OffsetRange(101, 102),))


def test_the_committed_offset_is_the_next_one_to_read() -> None:
    tracker = OffsetTracker(100)
    tracker.register([100, 101]).finish([100, 101])
    assert tracker.checkpoint() == Checkpoint(102)


def test_offsets_beyond_32_bits_keep_their_differences() -> None:
    tracker = OffsetTracker(2**40)
    run = tracker.register([2**40, 2**40 + 1, 2**40 + 2**33])
    run.finish([2**40, 2**40 + 2**33])
    ahead = OffsetRange(2**40 + 2, 2**40 + 2**33 + 1)
    assert tracker.checkpoint() == Checkpoint(2**40 + 1, (ahead,))


def test_nothing_is_committed_before_anything_is_known() -> None:
    assert OffsetTracker().checkpoint() is None
    assert OffsetTracker(7).checkpoint() == Checkpoint(7)


def test_markers_behind_the_last_record_are_passed_at_the_end_of_the_partition() -> None:
    tracker = OffsetTracker(0)
    tracker.register([0, 1]).finish([0, 1])
    tracker.reach(3)
    assert tracker.checkpoint() == Checkpoint(3)


def test_the_end_of_the_partition_does_not_pass_what_is_unfinished() -> None:
    tracker = OffsetTracker(0)
    tracker.register([0, 1]).finish([1])
    tracker.reach(9)
    assert tracker.checkpoint() == Checkpoint(0, (OffsetRange(1, 9),))


def test_an_offset_that_was_fetched_before_cannot_be_registered_again() -> None:
    tracker = OffsetTracker(0)
    tracker.register([0, 1, 2])
    assert tracker.unknown([1, 2, 3]) == [3]
    with pytest.raises(ValueError, match="offset 2 follows 2"):
        tracker.register([2, 3])


def test_one_stuck_record_costs_next_to_nothing_for_those_finished_beyond_it() -> None:
    polls, size = 200, 1000
    tracker = OffsetTracker(0)
    shuffled = random.Random(7)
    with memory_of_trackers() as memory:
        for poll in range(polls):
            offsets = list(range(poll * size, (poll + 1) * size))
            run = tracker.register(offsets)
            shuffled.shuffle(offsets)
            run.finish([o for o in offsets if o])  # record 0 is stuck
            if poll % 10 == 9:
                assert tracker.checkpoint() == Checkpoint(0, (OffsetRange(1, (poll + 1) * size),))
        del offsets, run
        used = memory()
    assert used < 20_000, f"{used} bytes for {polls * size} offsets"


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Threads take turns after a few instructions."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("quick_switches")
def test_checkpoints_taken_while_threads_finish_never_tell_more_than_is_finished() -> None:
    """The look at a run and the flips in it are not one step: each state between must be a true one."""
    count, size, threads = 30_000, 40, 3
    tracker = OffsetTracker(0)
    runs = [tracker.register(range(first, first + size)) for first in range(0, count, size)]
    begun = bytearray(count)

    def work(number: int) -> None:
        for place, run in enumerate(runs):
            for offset in range((place + 1) * size - 1 - number, place * size - 1, -threads):
                begun[offset] = 1
                if offset % 3:
                    run.finish((offset,))
                else:
                    tracker.finish((offset,))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    last = 0
    while last < count:
        alive = any(worker.is_alive() for worker in workers)
        found = tracker.checkpoint()
        assert found is not None
        assert found.offset >= last
        assert 0 not in begun[last : found.offset]
        encode(found)  # refuses ranges that are not apart from the offset and each other
        for first, end in found.ahead:
            assert 0 not in begun[first:end]
        last = found.offset
        assert alive or last == count
    assert tracker.checkpoint() == Checkpoint(count)


def test_what_is_finished_between_two_looks_of_a_checkpoint_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker finishes the first unfinished offset right after it was found to be that."""
    look = Run.first_unfinished

    def look_then_finish(run: Run) -> int | None:
        found = look(run)
        if found is not None:
            run.finish((found,))
        return found

    tracker = OffsetTracker(5)
    tracker.register([7, 8, 9, 11, 12]).finish([7, 9])
    monkeypatch.setattr(Run, "first_unfinished", look_then_finish)
    assert [tracker.checkpoint() for _ in range(3)] == [Checkpoint(11), Checkpoint(12), Checkpoint(13)]


def test_what_is_finished_between_two_ranges_of_a_look_does_not_make_them_touch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker finishes the offset right behind a range that was just found."""
    tracker = OffsetTracker(0)
    run = tracker.register(range(8))
    run.finish([1, 3, 4, 6])

    stretches = offsets.finished.layout._STRETCHES

    class Slow:
        def findall(self, flags: bytes | bytearray) -> list[bytes]:
            found, place = [], 0
            while stretch := stretches.match(flags, place):
                found.append(stretch[0])
                place = stretch.end()
                run.finish(range(place, 8)[:1])
            return found

    monkeypatch.setattr(offsets.finished.layout, "_STRETCHES", Slow())
    found = tracker.checkpoint()
    assert found == Checkpoint(0, (OffsetRange(1, 2), OffsetRange(3, 5), OffsetRange(6, 7)))
    assert encode(found)
    assert tracker.checkpoint() == Checkpoint(0, (OffsetRange(1, 8),))


@pytest.mark.usefixtures("quick_switches")
def test_a_checkpoint_between_the_look_for_new_offsets_and_their_registration_harms_neither() -> None:
    """An earlier worker finished every second hundred; a checkpoint may pass those at any moment."""
    restored = [OffsetRange(first, first + 100) for first in range(100, 40_000, 200)]
    tracker = OffsetTracker(0, restored)
    over = threading.Event()

    def commit() -> None:
        while not over.is_set():
            tracker.checkpoint()

    committer = threading.Thread(target=commit)
    committer.start()
    try:
        for first in range(0, 40_000, 50):
            offsets = range(first, first + 50)
            if new := tracker.unknown(offsets):
                tracker.register(new).finish(new)
            else:
                tracker.reach(offsets[-1] + 1)
    finally:
        over.set()
        committer.join()
    assert tracker.checkpoint() == Checkpoint(40_000)
