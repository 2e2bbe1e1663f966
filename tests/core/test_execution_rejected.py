"""Changes that are never tried again, and dead letters, in one handler's run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from building import Scripted, assignment, chunk, record, runs_of, seen, unit, work
from execution_building import Notes, batch_of, failing_at, steps_of
from hypothesis import given
from hypothesis import strategies as st

from handlers import Batch, PartialFailure, Rejected
from worker.attempts.steps import MustHalt, MustWait, Step

Script = Callable[[Batch], None]


def first_bad(batch: Batch, bad: set[int]) -> int | None:
    return next((at for at, change in enumerate(batch.changes) if change.offset in bad), None)


def rejecting(bad: set[int], how: str, applied: list[int]) -> Script:
    """Applies batches whole, and says in one of the ways there are which change it rejects."""

    def script(batch: Batch) -> None:
        at = first_bad(batch, bad)
        if at is None:
            applied.extend(change.offset for change in batch.changes)
            return
        if how == "at":
            raise Rejected("no such currency", at=at)
        if how == "partly":
            applied.extend(change.offset for change in batch.changes[:at])
            raise PartialFailure(at, Rejected("no such currency"))
        if how == "impossible at":
            raise Rejected("no such currency", at=len(batch.changes) + at)
        if how == "impossible part":
            raise PartialFailure(len(batch.changes) + 1, Rejected("no such currency"))
        if how == "alone":
            raise Rejected("no such currency")
        raise ValueError("no such currency")

    return script


WAYS = ["at", "partly", "alone", "impossible at", "impossible part", "error"]


@given(
    count=st.integers(1, 40),
    bad=st.sets(st.integers(0, 39)),
    how=st.sampled_from(WAYS),
    attempts=st.integers(1, 3),
)
def test_exactly_the_poisonous_changes_become_dead_letters_and_all_others_are_applied_once_in_order(
    count: int, bad: set[int], how: str, attempts: int
) -> None:
    applied: list[int] = []
    notes = Notes()
    handler = Scripted(rejecting(bad, how, applied))
    made, run = batch_of(handler, count, attempts=attempts, on_failure="dead_letter")
    assert steps_of(run, made, notes)[-1] is Step.DONE
    assert applied == [n for n in range(count) if n not in bad]
    assert notes.letters == [(n, 0) for n in range(count) if n in bad]
    assert run.finished


@given(
    count=st.integers(1, 30),
    bad=st.dictionaries(st.integers(0, 29), st.sampled_from(WAYS)),
    rule=st.sampled_from(["dead_letter", "skip", "halt"]),
)
def test_however_mixed_the_ways_of_failing_are(count: int, bad: dict[int, str], rule: str) -> None:
    applied: list[int] = []

    def script(batch: Batch) -> None:
        at = first_bad(batch, set(bad))
        how = "at" if at is None else bad[batch.changes[at].offset]
        rejecting(set(bad), how, applied)(batch)

    notes = Notes()
    made, run = batch_of(Scripted(script), count, on_failure=rule)
    last = steps_of(run, made, notes)[-1]
    first = min((n for n in bad if n < count), default=count)
    if rule == "halt" and first < count:
        assert last is Step.HALT
        assert applied == list(range(first))
        assert run.done == first
        return
    assert last is Step.DONE
    assert applied == [n for n in range(count) if n not in bad]
    settled = [offset for offset, _ in notes.letters] if rule == "dead_letter" else notes.skips
    assert settled == [n for n in range(count) if n in bad] or rule == "halt"


@pytest.mark.parametrize("how", ["at", "partly", "alone"])
def test_what_is_rejected_is_never_given_to_the_handler_again(how: str) -> None:
    handler = Scripted(rejecting({3}, how, []))
    made, run = batch_of(handler, 8, attempts=5, on_failure="dead_letter")
    assert steps_of(run, made, Notes()) == [Step.DONE], "without any wait"
    holding = [call for call in seen(handler) if 3 in call]
    assert len(holding) == {"at": 1, "partly": 1, "alone": 4}[how]
    assert {attempt for attempt, _ in handler.calls} == {1}, "no attempt is used up"


def test_the_changes_before_and_after_the_rejected_one_come_as_one_batch_each() -> None:
    handler = Scripted(rejecting({3}, "at", []))
    made, run = batch_of(handler, 8, on_failure="dead_letter")
    assert steps_of(run, made, Notes()) == [Step.DONE]
    assert seen(handler) == [list(range(8)), [0, 1, 2], [4, 5, 6, 7]]


def test_a_failure_before_the_rejected_change_has_all_its_attempts() -> None:
    tries = [0]

    def script(batch: Batch) -> None:
        rejecting({4}, "at", [])(batch)
        if batch.changes[0].offset == 0:
            tries[0] += 1
            if tries[0] < 3:
                raise ValueError("not now")

    handler, notes = Scripted(script), Notes()
    made, run = batch_of(handler, 6, attempts=3, on_failure="dead_letter")
    assert steps_of(run, made, notes) == [Step.RETRY, Step.RETRY, Step.DONE]
    assert notes.letters == [(4, 0)]


@pytest.mark.parametrize("at", [-1, 6, 100, None, "2", 1.0, True])
def test_a_place_that_cannot_be_counts_as_none(at: object) -> None:
    def script(batch: Batch) -> None:
        if any(change.offset == 2 for change in batch.changes):
            raise Rejected("it", at=at)  # type: ignore[arg-type]  # a faulty handler

    notes = Notes()
    made, run = batch_of(Scripted(script), 6, on_failure="dead_letter")
    assert steps_of(run, made, notes) == [Step.DONE]
    assert notes.letters == [(2, 0)]


def test_a_letter_says_how_often_its_change_was_tried() -> None:
    notes = Notes()
    made, run = batch_of(Scripted(failing_at(5)), 8, attempts=4, on_failure="dead_letter")
    assert steps_of(run, made, notes) == [Step.RETRY] * 3 + [Step.DONE]
    assert notes.attempts == [4]


@pytest.mark.parametrize("how", ["at", "partly", "alone"])
def test_a_change_is_rejected_by_its_place_among_the_changes_of_all_records(how: str) -> None:
    """Three records of three rows: the second row of the second record."""
    applied: list[tuple[int, int]] = []

    def script(batch: Batch) -> None:
        rows = [(change.offset, change.index) for change in batch.changes]
        if (1, 1) not in rows:
            applied.extend(rows)
            return
        at = rows.index((1, 1))
        if how == "partly":
            applied.extend(rows[:at])
            raise PartialFailure(at, Rejected("it"))
        raise Rejected("it", at=at if how == "at" else None)

    table = unit("a", Scripted(script), on_failure="dead_letter")
    made = work(table, chunk(assignment(), [record(n, rows=3) for n in range(3)]))
    run, notes = runs_of(made)[0], Notes()
    assert steps_of(run, made, notes) == [Step.DONE]
    assert notes.letters == [(1, 1)]
    assert applied == [(n, row) for n in range(3) for row in range(3) if (n, row) != (1, 1)]


def test_a_letter_that_cannot_be_written_is_tried_again_without_calling_the_handler() -> None:
    applied: list[int] = []
    handler, notes = Scripted(rejecting({2}, "at", applied)), Notes()
    made, run = batch_of(handler, 5, on_failure="dead_letter")
    notes.refuse = MustWait("the topic is away", 7.0)
    assert run.step(made, notes, lambda: 0.5) is Step.BLOCKED
    assert (run.done, run.delay, str(run.error)) == (2, 7.0, "the topic is away")
    calls = len(handler.calls)
    assert run.step(made, notes, lambda: 0.5) is Step.BLOCKED
    assert len(handler.calls) == calls
    notes.refuse = None
    assert run.step(made, notes, lambda: 0.5) is Step.DONE
    assert notes.letters == [(2, 0)]
    assert applied == [0, 1, 3, 4]


def test_one_letter_too_many_halts_at_its_change_and_who_goes_on_later_tries_it_again() -> None:
    bad = {2}
    applied: list[int] = []
    handler, notes = Scripted(rejecting(bad, "at", applied)), Notes()
    made, run = batch_of(handler, 5, on_failure="dead_letter")
    notes.refuse = MustHalt("a flood")
    assert run.step(made, notes, lambda: 0.5) is Step.HALT
    assert (run.done, str(run.error)) == (2, "a flood")
    bad.clear()
    assert steps_of(run, made, notes)[-1] is Step.DONE
    assert applied == [0, 1, 2, 3, 4]


def test_nothing_of_a_batch_that_was_called_off_becomes_a_dead_letter() -> None:
    handler, notes = Scripted(), Notes()

    def script(batch: Batch) -> None:
        notes.stop = True
        raise Rejected("it", at=0)

    handler.script = script
    made, run = batch_of(handler, 1, on_failure="dead_letter")
    assert run.step(made, notes, lambda: 0.5) is Step.STOPPED
    assert notes.letters == []
