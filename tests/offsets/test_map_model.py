"""The map of finished offsets against a naive model: the list of what was finished, in its order.

A kill leaves of it all that was finished before, and nothing that was not: in whatever step it comes.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from map_kills import ROWS, Interrupted, Worker, at_lines, left_by

from offsets import run as run_module
from offsets.run import Run

# From one record to the next: as in the model of the tracker.
STEPS = st.lists(st.sampled_from([1, 1, 1, 1, 1, 1, 1, 2, 3, 7, 90]), min_size=5, max_size=60)
# Before which lines: from one on, every so many.
LINES = st.builds(lambda first, step: set(range(first, 400, step)), st.integers(0, 60), st.integers(23, 97))
RARELY = st.integers(0, 3).map(lambda n: n == 3)
SEGMENT_BYTES = 512  # a new one every few polls
PARTITIONS = st.integers(0, len(ROWS) - 1)


class MapAgainstModel(RuleBasedStateMachine):
    """A worker that is killed in any step, and those that follow it."""

    def __init__(self) -> None:
        super().__init__()
        self.usual = run_module._WORTH_IT
        run_module._WORTH_IT = 10  # runs are shrunk early
        self.place = Path(tempfile.mkdtemp(prefix="map-"))
        self.lives = 0
        self.fetched: list[set[int]] = [set() for _ in ROWS]
        self.ends = [0 for _ in ROWS]  # where the next record may be written
        self.order: list[tuple[int, int]] = []  # what was finished, as it was
        self.saved = 0  # so much of it is in a checkpoint, though the map be given up
        self.kept = True  # the map goes on from what the file says
        self.worker = Worker(self.folder, SEGMENT_BYTES)

    @property
    def folder(self) -> Path:
        return self.place / f"life-{self.lives}"

    def done(
        self, do: Callable[[], object], lines: set[int], finishes: Sequence[tuple[int, int]] = ()
    ) -> None:
        """Do it, which finishes these one after the other, and be killed before each of these lines."""
        before, saved, kept = len(self.order), self.saved, self.kept
        self.order += finishes
        copies = self.place / "copies"
        made = at_lines(self.folder, copies, lines, do)
        for copy in made:
            self.judge(copy, before if kept and self.kept else min(before, saved))
        shutil.rmtree(copies, ignore_errors=True)

    def judge(self, folder: Path, least: int) -> int:
        """What is left is what was finished up to some moment, not before `least`. Returns how much."""
        left = left_by(folder)
        known = [
            (number, offset)
            for number, place in enumerate(ROWS)
            for offset in self.fetched[number]
            if any(first <= offset < end for first, end in left[place])
        ]
        count = len(set(known))
        assert set(known) == set(self.order[:count]), "a later one is finished, and an earlier one not"
        assert count >= least, f"{count} of {least} are left"
        for number, place in enumerate(ROWS):
            assert left[place][-1].end <= self.ends[number], "what never came is finished"
        return count

    @rule(partition=PARTITIONS, steps=STEPS, lines=LINES)
    def poll(self, partition: int, steps: list[int], lines: set[int]) -> None:
        offsets = []
        for step in steps:
            offsets.append(self.ends[partition] + step - 1)
            self.ends[partition] = offsets[-1] + 1
        self.fetched[partition] |= set(offsets)
        self.done(lambda: self.worker.poll(partition, offsets), lines)

    def unfinished(self, partition: int) -> list[tuple[Run, list[int]]]:
        over = {offset for number, offset in self.order if number == partition}
        runs = [(run, [o for o in its if o not in over]) for run, its in self.worker.runs[partition]]
        return [(run, its) for run, its in runs if its]

    def finish(self, data: st.DataObject, partition: int, lines: set[int], *, looks: bool) -> None:
        runs = self.unfinished(partition)
        if not runs:
            return
        run, left = data.draw(st.sampled_from(runs))
        chosen = data.draw(st.lists(st.sampled_from(left), unique=True, min_size=1))
        place = data.draw(st.integers(0, len(chosen))) if looks else -1
        save, finished = data.draw(st.booleans()), len(self.order)
        offsets = Interrupted(chosen, place, lambda: self.look(save=save, finished=finished))
        self.done(lambda: run.finish(offsets), lines, [(partition, offset) for offset in chosen])

    @rule(data=st.data(), partition=PARTITIONS, lines=LINES)
    def finish_some(self, data: st.DataObject, partition: int, lines: set[int]) -> None:
        self.finish(data, partition, lines, looks=False)

    @rule(data=st.data(), partition=PARTITIONS, lines=LINES)
    def finish_while_a_checkpoint_is_taken(
        self, data: st.DataObject, partition: int, lines: set[int]
    ) -> None:
        self.finish(data, partition, lines, looks=True)

    @rule(partition=PARTITIONS, lines=LINES)
    def finish_all_but_one(self, partition: int, lines: set[int]) -> None:
        for run, left in self.unfinished(partition):
            done = partial(run.finish, left[1:])
            self.done(done, lines, [(partition, offset) for offset in left[1:]])

    def look(self, *, save: bool, finished: int) -> None:
        """`finished`: how much is, before the checkpoint is taken."""
        self.worker.checkpoint(save)
        if save:
            self.saved = finished
            self.kept = all(each.window for each in self.worker.trackers)

    @rule(lines=LINES, save=st.sampled_from([True, True, False]))
    def checkpoint(self, lines: set[int], save: bool) -> None:
        self.done(lambda: self.look(save=save, finished=len(self.order)), lines)

    @rule()
    def status(self) -> None:
        self.worker.trackers[0].checkpoint()

    @rule(really=RARELY)
    def no_room(self, really: bool) -> None:
        if really:
            self.kept = False
            self.worker.map.give_up(OSError(28, "No space left on device"))

    @rule(really=RARELY)
    def killed(self, really: bool) -> None:
        """And the next worker goes on with what is left."""
        if not really:
            return
        former = self.folder
        count = self.judge(copied(former, self.place), len(self.order) if self.kept else self.saved)
        self.lives += 1
        shutil.copytree(former, self.folder)
        del self.order[count:]
        self.worker = Worker(self.folder, SEGMENT_BYTES)
        for number, of in enumerate(self.fetched):
            over = {offset for partition, offset in self.order if partition == number}
            new = self.worker.poll(number, sorted(of)) if of else []
            assert set(new) == of - over, "exactly what was not finished comes again"
        self.saved = len(self.order)
        self.kept = all(each.window for each in self.worker.trackers)

    def teardown(self) -> None:
        try:
            self.killed(really=True)
            self.worker.checkpoint()
            self.worker.close()
        finally:
            run_module._WORTH_IT = self.usual
            shutil.rmtree(self.place)


def copied(folder: Path, place: Path) -> Path:
    """As another process reads it: in this one the worker that was killed still holds its lock."""
    copy = place / "copied"
    shutil.rmtree(copy, ignore_errors=True)
    return shutil.copytree(folder, copy)


MapAgainstModel.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
test_the_map_equals_the_model_at_every_kill = MapAgainstModel.TestCase
