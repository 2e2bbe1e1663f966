"""One handler's way through one batch: attempts, backoff, splitting, partial failures."""

from __future__ import annotations

import time

import pytest
from building import Scripted, seen
from execution_building import Notes, batch_of, failing_at, partly, steps_of
from hypothesis import given
from hypothesis import strategies as st

from handlers import Batch, PartialFailure, StopWorker
from worker.attempts.backoff import backoff, describe
from worker.attempts.steps import Step
from worker.configuration import RetryRule

RULE = RetryRule(initial_delay=0.1, max_delay=30.0, multiplier=2.0, jitter=0.0)


def test_each_wait_is_longer_by_the_multiplier_up_to_the_longest() -> None:
    waits = [backoff(RULE, attempt, lambda: 0.5) for attempt in (1, 2, 3, 9, 10, 11)]
    assert waits == pytest.approx([0.1, 0.2, 0.4, 25.6, 30.0, 30.0])


@pytest.mark.parametrize(("drawn", "share"), [(0.0, 0.8), (0.5, 1.0), (1.0, 1.2)])
def test_jitter_changes_a_wait_by_at_most_its_share(drawn: float, share: float) -> None:
    rule = RULE.model_copy(update={"jitter": 0.2})
    assert backoff(rule, 3, lambda: drawn) == pytest.approx(0.4 * share)


@given(
    initial=st.floats(0, 1e6),
    longest=st.floats(0, 1e6),
    multiplier=st.floats(1, 1e300),
    jitter=st.floats(0, 1),
    attempt=st.integers(1, 10**9),
)
def test_a_wait_is_never_negative_nor_longer_than_the_longest(
    initial: float, longest: float, multiplier: float, jitter: float, attempt: int
) -> None:
    rule = RetryRule(initial_delay=initial, max_delay=longest, multiplier=multiplier, jitter=jitter)
    for random in (lambda: 0.0, lambda: 0.3, lambda: 1.0):
        assert 0.0 <= backoff(rule, attempt, random) <= longest


def test_a_batch_that_works_is_done_in_one_call() -> None:
    handler, notes = Scripted(), Notes()
    made, run = batch_of(handler, 3)
    assert steps_of(run, made, notes) == [Step.DONE]
    assert handler.calls == [(1, [(0, 0), (1, 0), (2, 0)])]
    assert run.finished
    assert run.done == 3


def test_a_failing_batch_is_tried_as_often_as_the_rule_says_then_split_until_the_change_stands_alone() -> (
    None
):
    handler, notes = Scripted(failing_at(5)), Notes()
    made, run = batch_of(handler, 8)
    assert steps_of(run, made, notes) == [Step.RETRY, Step.RETRY, Step.HALT]
    whole = list(range(8))
    assert seen(handler) == [whole, whole, whole, [0, 1, 2, 3], [4, 5, 6, 7], [4, 5], [4], [5]]
    assert [attempt for attempt, _ in handler.calls[:4]] == [1, 2, 3, 4]
    assert run.done == 5
    assert len(notes.failures) == 6


def test_the_waits_of_a_run_follow_the_rule() -> None:
    made, run = batch_of(Scripted(failing_at(0)), 1)
    delays = []
    while run.step(made, Notes(), lambda: 0.5) is Step.RETRY:
        delays.append(run.delay)
    assert delays == [1.0, 2.0]


def test_without_a_limit_a_batch_is_never_split() -> None:
    handler = Scripted(failing_at(1))
    made, run = batch_of(handler, 4, attempts=None)
    assert {run.step(made, Notes(), lambda: 0.5) for _ in range(30)} == {Step.RETRY}
    assert set(map(tuple, seen(handler))) == {(0, 1, 2, 3)}


@given(count=st.integers(1, 40), bad=st.sets(st.integers(0, 39)), attempts=st.integers(1, 3))
def test_skipping_passes_over_the_failing_changes_alone_and_keeps_the_order(
    count: int, bad: set[int], attempts: int
) -> None:
    applied: list[int] = []

    def script(batch: Batch) -> None:
        failing_at(*bad)(batch)
        applied.extend(change.offset for change in batch.changes)

    notes = Notes()
    made, run = batch_of(Scripted(script), count, attempts=attempts, on_failure="skip")
    assert steps_of(run, made, notes)[-1] is Step.DONE
    assert applied == [n for n in range(count) if n not in bad]
    assert notes.skips == [n for n in range(count) if n in bad]


@given(count=st.integers(1, 40), bad=st.integers(0, 39))
def test_halting_stops_at_the_failing_change_with_all_before_it_applied(count: int, bad: int) -> None:
    made, run = batch_of(Scripted(failing_at(bad)), count, attempts=1)
    steps = steps_of(run, made, Notes())
    assert steps == ([Step.HALT] if bad < count else [Step.DONE])
    assert run.done == min(bad, count)


@given(count=st.integers(1, 30), bad=st.sets(st.integers(0, 29)), skip=st.booleans())
def test_what_a_partial_failure_calls_done_is_never_given_again(
    count: int, bad: set[int], skip: bool
) -> None:
    handler, notes = Scripted(partly(*bad)), Notes()
    made, run = batch_of(handler, count, on_failure="skip" if skip else "halt")
    steps_of(run, made, notes)
    first = min((n for n in bad if n < count), default=count)
    assert run.done == (count if skip else first)
    for call, following in zip(seen(handler), seen(handler)[1:], strict=False):
        applied = [n for n in call if n < min((b for b in bad if b >= call[0]), default=count)]
        assert not set(applied) & set(following)


def test_after_a_partial_failure_the_next_change_has_all_its_attempts() -> None:
    """Three attempts are enough for two changes that each work at the third."""
    tries = {2: 0, 4: 0}

    def script(batch: Batch) -> None:
        for done, change in enumerate(batch.changes):
            if change.offset in tries and tries[change.offset] < 2:
                tries[change.offset] += 1
                raise PartialFailure(done)

    handler = Scripted(script)
    made, run = batch_of(handler, 6)
    assert steps_of(run, made, Notes()) == [Step.RETRY] * 4 + [Step.DONE]
    assert seen(handler) == [list(range(first, 6)) for first in (0, 2, 2, 4, 4)]
    assert [attempt for attempt, _ in handler.calls] == [1, 1, 2, 1, 2]


def test_a_partial_failure_while_splitting_gives_the_next_change_its_attempts_too() -> None:
    handler = Scripted(failing_at(5))
    made, run = batch_of(handler, 8)
    for _ in range(2):
        assert run.step(made, Notes(), lambda: 0.5) is Step.RETRY

    def partly_from_now_on(batch: Batch) -> None:
        if len(handler.calls) > 3:
            partly(5)(batch)
        failing_at(5)(batch)

    handler.script = partly_from_now_on
    assert run.step(made, Notes(), lambda: 0.5) is Step.RETRY
    assert (run.done, run.attempt) == (5, 1)


@pytest.mark.parametrize("done", [-1, 0, 7, 1000, None, "3", 2.5])
def test_a_partial_failure_that_cannot_be_counts_as_a_failure_of_all(done: object) -> None:
    def script(batch: Batch) -> None:
        raise PartialFailure(done, ValueError("why"))  # type: ignore[arg-type]  # a faulty handler

    made, run = batch_of(Scripted(script), 6)
    notes = Notes()
    assert run.step(made, notes, lambda: 0.5) is Step.RETRY
    assert (run.done, run.attempt, notes.failures) == (0, 2, ["why"])


def test_a_partial_failure_of_everything_is_a_success() -> None:
    def script(batch: Batch) -> None:
        raise PartialFailure(len(batch.changes))

    made, run = batch_of(Scripted(script), 3)
    assert steps_of(run, made, Notes()) == [Step.DONE]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), MemoryError()])
def test_whatever_a_handler_raises_is_its_batchs_failure(error: BaseException) -> None:
    def script(batch: Batch) -> None:
        raise error

    made, run = batch_of(Scripted(script), 1, attempts=1)
    assert run.step(made, Notes(), lambda: 0.5) is Step.HALT
    assert run.error is error


def test_stop_worker_passes_through() -> None:
    def script(batch: Batch) -> None:
        raise StopWorker("the JVM is gone")

    made, run = batch_of(Scripted(script), 1)
    with pytest.raises(StopWorker, match="the JVM is gone"):
        run.step(made, Notes(), time.monotonic)


def test_work_that_was_called_off_is_not_begun_nor_split_further() -> None:
    notes = Notes()

    def script(batch: Batch) -> None:
        notes.stop = len(batch.changes) == 2
        failing_at(0)(batch)

    handler = Scripted(script)
    made, run = batch_of(handler, 4, attempts=1)
    assert run.step(made, notes, lambda: 0.5) is Step.STOPPED
    assert seen(handler) == [[0, 1, 2, 3], [0, 1]]
    assert run.step(made, notes, lambda: 0.5) is Step.STOPPED
    assert len(handler.calls) == 2


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_error_is_described_in_one_line_whatever_it_is() -> None:
    assert describe(ValueError("one\n  two")) == "ValueError: one two"
    assert describe(ValueError()) == "ValueError"
    assert describe(Unspeakable()) == "Unspeakable"
    assert len(describe(ValueError("x" * 10_000))) < 600
