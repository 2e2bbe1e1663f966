"""Targets that are down, in one handler's run."""

from __future__ import annotations

import pytest
from building import Clock, Scripted, seen
from execution_building import Notes, batch_of

from handlers import Batch, PartialFailure, TargetUnavailable
from worker.attempts.circuit import Circuit
from worker.attempts.steps import ProcessAway, Step


def down(_batch: Batch) -> None:
    raise TargetUnavailable("connection refused")


def test_a_target_that_is_down_uses_up_no_attempt_and_is_waited_for_ever_longer() -> None:
    clock, handler, notes = Clock(), Scripted(down), Notes()
    made, run = batch_of(handler, 3, attempts=2)
    run.circuit = Circuit(clock)
    waits = []
    for _ in range(8):
        assert run.step(made, notes, lambda: 0.5) is Step.BLOCKED
        waits.append(round(run.delay, 1))
        clock.now += run.delay
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    assert notes.downs == ["connection refused"], "told once"
    handler.script = lambda _: None
    assert run.step(made, notes, lambda: 0.5) is Step.DONE
    assert [attempt for attempt, _ in handler.calls] == [1] * 9
    assert notes.ups == [pytest.approx(sum(waits), rel=0.01)]


@pytest.mark.parametrize(
    ("asked", "wait"),
    [
        (None, 1.0),
        (0.2, 1.0),
        (20, 20.0),
        (86_400, 900.0),
        (-5, 1.0),
        (float("nan"), 1.0),
        (float("inf"), 900.0),
        ("20", 1.0),
    ],
)
def test_a_target_may_ask_for_a_longer_wait_within_reason(asked: object, wait: float) -> None:
    def script(batch: Batch) -> None:
        raise TargetUnavailable("busy", retry_after=asked)  # type: ignore[arg-type]  # a faulty handler

    made, run = batch_of(Scripted(script), 1)
    run.circuit = Circuit(Clock())
    assert run.step(made, Notes(), lambda: 0.5) is Step.BLOCKED
    assert run.delay == pytest.approx(wait, abs=0.02)


def test_a_table_that_is_held_up_alone_keeps_no_other_one_waiting_and_uses_up_no_attempt() -> None:
    def script(batch: Batch) -> None:
        raise TargetUnavailable("a statement waits", retry_after=20, others_go_on=True)

    notes, circuit, handler = Notes(), Circuit(Clock()), Scripted(script)
    made, run = batch_of(handler, 3, attempts=1)
    other, other_run = batch_of(Scripted(lambda _: None), 1)
    run.circuit = other_run.circuit = circuit
    for _ in range(3):
        assert run.step(made, notes, lambda: 0.5) is Step.BLOCKED
        assert run.delay == 20.0
        assert circuit.closed
    assert other_run.step(other, notes, lambda: 0.5) is Step.DONE
    assert notes.downs == []
    assert str(run.error) == "a statement waits"
    handler.script = lambda _: None
    assert run.step(made, notes, lambda: 0.5) is Step.DONE
    assert [attempt for attempt, _ in handler.calls] == [1] * 4


def test_a_table_that_is_held_up_alone_tells_that_the_target_is_back() -> None:
    clock, notes = Clock(), Notes()
    made, run = batch_of(handler := Scripted(down), 1)
    run.circuit = Circuit(clock)
    assert run.step(made, notes, lambda: 0.5) is Step.BLOCKED

    def held(_batch: Batch) -> None:
        raise TargetUnavailable("a statement waits", others_go_on=True)

    handler.script = held
    clock.now += 60.0
    assert run.step(made, notes, lambda: 0.5) is Step.BLOCKED
    assert run.circuit.closed
    assert notes.ups == [60.0]


def test_while_the_target_is_down_others_are_not_even_tried() -> None:
    clock, notes = Clock(), Notes()
    circuit = Circuit(clock)
    first, second = Scripted(down), Scripted()
    made, run = batch_of(first, 1)
    other, other_run = batch_of(second, 1)
    run.circuit = other_run.circuit = circuit
    assert run.step(made, notes, lambda: 0.5) is Step.BLOCKED
    assert other_run.step(other, notes, lambda: 0.5) is Step.BLOCKED
    assert second.calls == []
    assert other_run.delay == pytest.approx(1.0)
    assert str(other_run.error) == "connection refused"
    clock.now += 1.0
    assert other_run.step(other, notes, lambda: 0.5) is Step.DONE, "the probe"
    assert circuit.closed


def test_a_table_does_not_wait_as_long_as_another_that_finds_the_target_down_again_and_again() -> None:
    notes, circuit = Notes(), Circuit(clock := Clock())
    held, held_run = batch_of(Scripted(down), 1)
    other, other_run = batch_of(Scripted(), 1)
    held_run.circuit = other_run.circuit = circuit
    for _ in range(5):
        clock.now += held_run.delay
        assert held_run.step(held, notes, lambda: 0.5) is Step.BLOCKED
    assert held_run.delay == pytest.approx(16.0, abs=0.02)
    assert other_run.step(other, notes, lambda: 0.5) is Step.BLOCKED
    assert other_run.delay == 1.0


def test_what_was_done_before_the_target_went_down_stays_done() -> None:
    def script(batch: Batch) -> None:
        if len(handler.calls) == 1:
            raise PartialFailure(3, TargetUnavailable("cut off"))

    clock, handler = Clock(), Scripted(script)
    made, run = batch_of(handler, 5)
    run.circuit = Circuit(clock)
    assert run.step(made, Notes(), lambda: 0.5) is Step.BLOCKED
    clock.now += run.delay
    assert run.step(made, Notes(), lambda: 0.5) is Step.DONE
    assert seen(handler) == [[0, 1, 2, 3, 4], [3, 4]]


def test_a_batch_asks_again_for_its_process_and_not_after_the_tables_delay() -> None:
    def script(batch: Batch) -> None:
        raise ProcessAway("lane process 0 is handling a batch alone", 0.1)

    made, run = batch_of(Scripted(script), 1)
    assert run.step(made, Notes(), lambda: 0.5) is Step.BLOCKED
    assert run.delay == pytest.approx(0.1)
