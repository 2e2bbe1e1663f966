"""Defects that were there once, or nearly, put back: the simulation has to see them, each with its oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from offsets import restore
from offsets.finished import reading
from offsets.journal import journal
from offsets.run import Run
from offsets.tracker import OffsetTracker
from offsets.types import Checkpoint
from worker.attempts.retry_and_split import HandlerRun, _Fate
from worker.attempts.steps import Step
from worker.fetching.backpressure import MaxAhead
from worker.fetching.fetcher import Fetcher
from worker.fetching.parking import Parking
from worker.lanes.lane import Room
from worker.lanes.lanes import Lanes
from worker.partitions import committer, starts
from worker.partitions.committer import Committer
from worker.partitions.pausing import Pauses
from worker.units.assigned_partition import Assignment
from worker.units.unit import UnitState

from .plan import Event, Plan
from .run import run, simulating

_MOST_SEEDS = 3_000

Patch = pytest.MonkeyPatch


def found_by(oracle: str, *, first: int = 0, plan_of: Callable[[int], Plan] = Plan.of) -> int:
    """The seed whose run breaks that promise."""
    others: dict[str, int] = {}
    with simulating():
        for seed in range(first, first + _MOST_SEEDS):
            for violation in run(plan_of(seed)).violations:
                name = violation.partition(":")[0]
                if name == oracle:
                    return seed
                others.setdefault(name, seed)
    pytest.fail(f"no run of {_MOST_SEEDS} breaks {oracle}; others: {others}")


def test_a_partition_stays_paused_that_waits_for_nothing(monkeypatch: Patch) -> None:
    """The worker heals itself after a minute, so that all is handled in the end."""

    right = Pauses.single

    def single(self: Pauses, why: Any, wanted: Any) -> None:
        if why != "held":
            right(self, why, wanted)
            return
        before, self._single[why] = self.of(why), frozenset(wanted)
        self._tell(self._single[why] - before)

    monkeypatch.setattr(Pauses, "single", single)
    found_by("standstill")


def usurping(seed: int) -> Plan:
    """A plan with a member that takes partitions over while commits are rare."""
    return replace(Plan.of(296), seed=seed)


def test_records_are_handled_before_kafka_has_taken_a_commit_of_their_owner(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Assignment, "may_begin", True)
    found_by("replay", plan_of=usurping)


def test_a_commit_goes_past_what_is_unfinished(monkeypatch: Patch) -> None:
    def highest(trackers: Sequence[OffsetTracker], **_: bool) -> list[Checkpoint | None]:
        return [None if each.next_offset is None else Checkpoint(each.next_offset) for each in trackers]

    monkeypatch.setattr(committer, "checkpoints", highest)
    found_by("commit")


def test_finished_ahead_is_told_of_what_still_runs(monkeypatch: Patch) -> None:
    real: Callable[[Run], Any] = Run.finished_ranges

    def one_more(self: Run) -> Any:
        return [each._replace(end=min(each.end + 1, self.end)) for each in real(self)]

    monkeypatch.setattr(Run, "finished_ranges", one_more)
    found_by("commit")


def test_a_commit_is_remembered_before_it_succeeded(monkeypatch: Patch) -> None:
    real = Committer._save_in_kafka

    def hopeful(self: Committer, found: Mapping[Any, Checkpoint], *, everything: bool, again: bool) -> bool:
        done = real(self, found, everything=everything, again=False)  # else it goes right later on
        for assignment, checkpoint in found.items():
            assignment.in_kafka = checkpoint
        return done

    monkeypatch.setattr(Committer, "_save_in_kafka", hopeful)
    found_by("progress")


def test_what_was_finished_ahead_is_forgotten_at_the_next_assignment(monkeypatch: Patch) -> None:
    real = OffsetTracker.__init__

    def forgetful(
        self: OffsetTracker, start: int | None = None, restored: Any = (), finished_map: Any = None
    ) -> None:
        real(self, start, (), finished_map)

    monkeypatch.setattr(OffsetTracker, "__init__", forgetful)
    found_by("remembered")


def test_the_file_is_believed_when_kafkas_offset_is_the_one_that_it_knows(monkeypatch: Patch) -> None:
    real = restore._from_file

    def by_offset(file: Any, kafka: Any, window: Any) -> Any:
        known = file.acknowledged
        if kafka is not None and known is not None and kafka.mark.offset == known.offset:
            return restore._with(window, file, "")
        return real(file, kafka, window)

    monkeypatch.setattr(restore, "_from_file", by_offset)
    found_by("remembered", first=700)  # it takes two members that stop at one offset


def test_a_table_is_begun_while_a_batch_of_it_runs(monkeypatch: Patch) -> None:
    real = Lanes.take

    def take(self: Lanes, number: int, finished: Any = None) -> Any:
        work = real(self, number, finished)
        if work is not None and work.unit.chunks:
            with self.lock:
                work.unit.state = UnitState.IDLE
                self.schedule.arrange(work.unit)
                self.schedule.wake()
        return work

    monkeypatch.setattr(Lanes, "take", take)
    found_by("order")


def test_lanes_take_more_than_they_may(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Room, "fits", lambda self, delivery: True)
    found_by("bounds")


def test_what_a_standing_table_has_fills_the_lanes(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Parking, "between_polls", lambda self, now: None)
    found_by("progress", first=73)


def test_the_fetcher_does_not_hear_that_it_is_to_leave(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Fetcher, "close", Fetcher.drain)
    found_by("drained")


def test_a_batch_that_failed_counts_as_finished(monkeypatch: Patch) -> None:
    def passes(self: HandlerRun, work: Any, end: int, error: Any, random: Any) -> Step | None:
        self._pass(end)
        return None

    monkeypatch.setattr(HandlerRun, "_after_failure", passes)
    found_by("order")


def test_a_member_that_was_evicted_begins_what_another_has(monkeypatch: Patch) -> None:
    """Nothing keeps the worker from it."""
    monkeypatch.setattr(Lanes, "trust", lambda self, until: None, raising=False)
    found_by("another's", first=50)


def test_what_a_killed_worker_has_flagged_is_not_looked_at(monkeypatch: Patch) -> None:
    monkeypatch.setattr(starts, "read", lambda directory, names, remove: {})
    found_by("kill", first=25)


def losing_power(seed: int) -> Plan:
    """Draw a plan whose only faults are three power losses, and whose records are many and good."""
    plan, random = Plan.of(seed), Random(f"power {seed}")
    plan.records, plan.handle_seconds, plan.segment_bytes = 300, 0.05, 4096
    plan.poison = plan.broken = 0
    plan.stands = ""
    plan.settings["max_ahead"] = 1_000_000
    times = sorted(random.uniform(0.3, 1) * plan.seconds for _ in range(3))
    plan.events = [Event(at, "power", 0, random.uniform(0, 8)) for at in times]
    return plan


def test_a_map_counts_though_the_machine_was_started_anew(monkeypatch: Patch) -> None:
    real = reading.records

    def any_boot(data: bytes, writer: int, number: int, boot: bytes) -> Any:
        return real(data, writer, number, data[8:24])

    monkeypatch.setattr(reading, "records", any_boot)
    # Some pages of the map have to be older than others, which takes many records and power losses.
    found_by("replay", first=1225, plan_of=losing_power)


def test_two_workers_append_to_a_journal_at_once(monkeypatch: Patch) -> None:
    monkeypatch.setattr(journal, "locked", lambda path, seconds: nullcontext())
    found_by("journal")


def test_a_partition_is_read_on_beyond_max_ahead(monkeypatch: Patch) -> None:
    monkeypatch.setattr(MaxAhead, "between_polls", lambda self, now: None)
    found_by("bounds")


def test_a_whole_batch_is_passed_over_for_one_record(monkeypatch: Patch) -> None:
    def all_of_it(self: HandlerRun, work: Any, end: int, error: BaseException, random: Any) -> None:
        self._condemned |= {place: _Fate(error, 1) for place in range(self.done, end)}

    monkeypatch.setattr(HandlerRun, "_after_failure", all_of_it)
    found_by("order")


def test_a_table_goes_on_behind_a_change_that_has_halted_it(monkeypatch: Patch) -> None:
    def goes_on(self: Lanes, number: int, work: Any, error: str) -> None:
        work.runs[0].done = work.total
        self.give_back(number, work, delay=0.0, error=error)

    monkeypatch.setattr(Lanes, "halt", goes_on)
    found_by("order", first=69)
