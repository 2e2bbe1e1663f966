"""Workers with child processes: no run breaks a promise, and the defects of such designs are found."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import inf
from random import Random
from typing import Any

import pytest

from worker.attempts.steps import ProcessAway, ProcessDied
from worker.processes import changes
from worker.processes import child as child_program
from worker.processes import processes as processes_module
from worker.processes.changes import Held
from worker.processes.messages import REQUESTS, unpacked_error
from worker.processes.opened import OpenedHandlers, asked_by
from worker.processes.process import Known, Process
from worker.processes.slot import Slot

from .machine.scheduler import current
from .plan import Event, Plan
from .run import run_all
from .test_simulation_oracles import found_by

Patch = pytest.MonkeyPatch

_SEEDS = range(100, 120)


def test_no_promise_is_broken_with_child_processes() -> None:
    results = run_all(_SEEDS, Plan.with_children)
    assert {each.seed: each.violations for each in results if each.violations} == {}
    assert sum(each.handled for each in results) > 1000


def unheard(seed: int) -> Plan:
    """Draw a plan whose workers often lose connections to child processes."""
    plan, random = Plan.with_children(seed), Random(f"unheard {seed}")
    plan.handle_seconds = 0.4
    plan.events = [Event(random.random() * plan.seconds, "child_unheard") for _ in range(8)]
    return plan


def opening_late(seed: int) -> Plan:
    """Draw a plan of two workers: one opens its handlers again while its partitions become another's."""
    plan, random = Plan.with_children(seed), Random(f"late {seed}")
    plan.workers, plan.poison, plan.stands, plan.seconds = 2, 0.0, "", 40.0
    plan.handle_seconds = 0.05
    assert plan.children is not None
    plan.children = replace(plan.children, late=1.0, opening=0.0, deadly=0)
    plan.settings["lanes"]["processes"] = 1
    begin = random.uniform(21.0, 25.0)  # it takes up to 20 seconds
    plan.events = [Event(begin, "unheard", 0, 25.0), Event(begin + 0.5, "child_killed", 0)]
    return plan


def stalled(seed: int) -> Plan:
    """Draw one of two workers whose only process is stopped: calls wait in it while their partitions become
    another's."""
    plan, random = opening_late(seed), Random(f"stalled {seed}")
    assert plan.children is not None
    plan.children = replace(plan.children, late=0.0, dying=0.0, count=1)
    begin = random.uniform(21.0, 25.0)
    plan.events = [
        Event(begin, "unheard", 0, 25.0),
        Event(begin, "changed", 0),
        Event(begin + random.uniform(0, 0.2), "child_frozen", 0, random.uniform(7, 20)),
    ]
    return plan


def idle(seed: int) -> Plan:
    """Draw one of a worker that is to end while its only process is stopped, and no batch is in it."""
    plan, random = Plan.with_children(seed), Random(f"idle {seed}")
    plan.workers, plan.seconds, plan.handle_seconds = 1, 3.0, 0.0
    plan.failing = plan.unavailable = plan.hanging = plan.late = 0.0
    plan.stands, plan.paused = "", False
    assert plan.children is not None
    plan.children = replace(plan.children, late=0.0, dying=0.0, opening=0.0, deadly=0, count=1)
    plan.settings["lanes"]["processes"] = 1
    begin = random.uniform(20.0, 30.0)
    plan.events = [Event(begin, "child_frozen", 0, 90.0), Event(begin + random.random(), "replace", 0)]
    return plan


@pytest.mark.parametrize("plan_of", [opening_late, stalled, idle])
def test_no_call_begins_when_another_may_have_its_partition(plan_of: Callable[[int], Plan]) -> None:
    results = run_all(range(12), plan_of)
    assert {each.seed: each.violations for each in results if each.violations} == {}
    assert sum(each.handled for each in results) > 1000


def found(oracle: str, *, first: int = 0) -> int:
    return found_by(oracle, first=first, plan_of=Plan.with_children)


def test_a_process_that_is_not_heard_any_more_lives_on(monkeypatch: Patch) -> None:
    def how_ended(self: Process) -> str:
        return "it does not answer"

    monkeypatch.setattr(Process, "how_ended", property(how_ended))
    found_by("children", plan_of=unheard)


def test_a_batch_is_tried_again_while_its_late_answer_is_on_its_way(monkeypatch: Patch) -> None:
    def ask(self: Process, name: str, *rest: Any, latest: Callable[[], float] | None = None) -> Any:
        if not self._free:
            self._free.append((next(self._numbers), self._connect(REQUESTS)))
        number, frames = self._free.pop()
        frames.send((name, *rest) if latest is None else (name, *rest, latest()))
        end: Any = frames._socket
        late = current().now + 3.0
        while not end.end().data and current().now < late:
            end.end().waiting.append(current().task)
            current().park(late - current().now)
        self._free.append((number, frames))
        if current().now >= late:
            raise ProcessAway("no answer", 0.1)
        succeeded, answer = frames.receive()
        if not succeeded:
            raise unpacked_error(answer)
        return answer

    monkeypatch.setattr(Process, "ask", ask)
    found("commit", first=2)


def test_an_answer_comes_before_the_handler_has_returned(monkeypatch: Patch) -> None:
    real = OpenedHandlers.handle

    def handle(self: OpenedHandlers, *what: Any) -> None:
        frames = asked_by.get()

        def later() -> None:
            asked_by.set(frames)
            with suppress(Exception):
                real(self, *what)

        child_program.threading.Thread(target=later).start()  # type: ignore[attr-defined]

    monkeypatch.setattr(OpenedHandlers, "handle", handle)
    found("order")


def test_a_ticket_of_an_ended_process_is_shown_to_the_next(monkeypatch: Patch) -> None:
    class AnyProcess(Held):
        def __del__(self) -> None:
            """It is kept."""

        @property
        def process(self) -> Process:
            task: Any = current().task
            slots = task.process.worker.components.processes._slots
            found: Process = slots[self._own.number].present or self._own
            return found

        @process.setter
        def process(self, own: Process) -> None:
            self._own = own

    monkeypatch.setattr(changes, "Held", AnyProcess)
    found("order", first=5)


def test_a_call_whose_process_has_ended_has_succeeded(monkeypatch: Patch) -> None:
    real = Slot.ask

    def ask(self: Slot, table: str, process: Process, name: str, *rest: Any, **more: Any) -> Any:
        try:
            return real(self, table, process, name, *rest, **more)
        except ProcessDied:
            if name == "handle":
                return None
            raise

    monkeypatch.setattr(Slot, "ask", ask)
    found("commit")


def test_every_batch_of_an_ended_process_is_blamed(monkeypatch: Patch) -> None:
    def died(self: Slot, process: Process) -> Exception:
        self._gone(process)
        return ProcessDied("it has ended")

    monkeypatch.setattr(Slot, "_died", died)
    found("commit", first=188)


def test_a_process_that_has_ended_is_not_started_again(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Slot, "_pause", lambda self: None)
    found("progress")


def test_a_new_process_counts_as_knowing_what_the_former_one_knew(monkeypatch: Patch) -> None:
    real = Process.__init__
    known: dict[Any, Known] = {}

    def init(self: Process, number: int, listener: Any, ended: Any) -> None:
        real(self, number, listener, ended)
        self.knows = known.setdefault(listener, self.knows)

    monkeypatch.setattr(Process, "__init__", init)
    found("progress")


@pytest.mark.parametrize(("plan_of", "first"), [(opening_late, 0), (stalled, 16)])
def test_a_child_begins_a_call_however_late(
    monkeypatch: Patch, plan_of: Callable[[int], Plan], first: int
) -> None:
    monkeypatch.setattr(processes_module, "latest_begin", lambda chunks, trusted_until: inf)
    found_by("another's", first=first, plan_of=plan_of)


def test_a_child_does_not_end_with_its_worker(monkeypatch: Patch) -> None:
    monkeypatch.setattr(child_program, "_end_with", lambda life: None)
    found("children", first=8)


def test_a_worker_waits_for_a_child_that_hangs(monkeypatch: Patch) -> None:
    def end(self: Process) -> None:
        self._control.close()
        self._child.wait()

    monkeypatch.setattr(Process, "end", end)
    found_by("drained", plan_of=idle)


def test_a_child_keeps_batches_that_nobody_needs(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Held, "__del__", lambda self: None)
    found("children", first=8)


def test_others_wait_for_a_suspect_that_does_not_come_again(monkeypatch: Patch) -> None:
    def may_enter(self: Slot, table: str) -> bool:
        return table in self._suspects and not self._calls

    monkeypatch.setattr(Slot, "_may_enter", may_enter)
    found("progress", first=80)
