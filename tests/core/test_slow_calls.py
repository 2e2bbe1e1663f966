"""Handlers' calls that take long: which are reported, when, and with whose stack."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from building import Clock, Scripted, assignment, chunk, record, unit, work
from processing import Stage
from structlog.testing import capture_logs

from handlers import Batch
from worker.processing.slow_calls import RunningCalls, SlowCalls
from worker.units.unit import Unit
from worker.units.work import Work


def table_of(slow_after: float, *handlers: Scripted) -> Unit:
    made = unit("orders", *handlers)
    made.table.rule = made.table.rule.model_copy(update={"slow_after": slow_after})
    return made


def work_of(table: Unit) -> Work:
    made = work(table, chunk(assignment(), [record(n) for n in range(3)]))
    made.decode(lambda *_: False)
    return made


@pytest.fixture
def clock() -> Clock:
    return Clock()


def told(slow: SlowCalls) -> list[Any]:
    with capture_logs() as logs:
        slow.look()
    return logs


def test_a_call_is_reported_once_when_it_is_slow_and_again_at_every_doubling(clock: Clock) -> None:
    calls = RunningCalls()
    slow = SlowCalls(calls, clock)
    calls.begin("mirror", work_of(table_of(60.0)), 1, clock(), 1)
    seconds = []
    for _ in range(500):
        clock.now += 1
        seconds += [log["seconds"] for log in told(slow)]
    assert seconds == [60, 120, 240, 480]


def test_a_report_says_where_the_call_is_and_holds_the_stack_of_its_thread_alone(clock: Clock) -> None:
    calls = RunningCalls()
    inside, go_on = threading.Event(), threading.Event()
    batch = work_of(table_of(60.0))

    def waits_for_the_target() -> None:
        calls.begin("mirror", batch, 1, clock(), 1)
        inside.set()
        go_on.wait(10)
        calls.end()

    thread = threading.Thread(target=waits_for_the_target, name="the-handler's")
    thread.start()
    assert inside.wait(10)
    clock.now += 61
    [log] = told(SlowCalls(calls, clock))
    go_on.set()
    thread.join(10)
    assert (log["event"], log["log_level"]) == ("handler_slow", "warning")
    assert (log["handler"], log["table"], log["seconds"]) == ("mirror", "shop.orders", 61)
    assert log["position"] == "cdc.shop[0] offset 1 row 0"
    assert "waits_for_the_target" in log["stack_of_handler"]
    assert "test_a_report_says_where" not in log["stack_of_handler"]


def test_after_a_long_gap_one_report_is_enough(clock: Clock) -> None:
    calls = RunningCalls()
    slow = SlowCalls(calls, clock)
    calls.begin("mirror", work_of(table_of(1.0)), 0, clock(), 1)
    clock.now += 100
    assert len(told(slow)) == 1
    assert told(slow) == []
    clock.now += 28
    assert len(told(slow)) == 1, "at 128 s"


def test_each_call_counts_for_itself(clock: Clock) -> None:
    calls = RunningCalls()
    slow = SlowCalls(calls, clock)
    for _ in range(3):
        calls.begin("mirror", work_of(table_of(60.0)), 0, clock(), 1)
        clock.now += 59
        assert told(slow) == []
        calls.end()
    assert calls.current() == {}


@pytest.mark.parametrize("handlers", [1, 3])
def test_whichever_thread_a_handler_runs_in_its_call_is_known_while_it_runs(handlers: int) -> None:
    inside, go_on = threading.Barrier(handlers + 1), threading.Event()

    def script(_batch: Batch) -> None:
        inside.wait(10)
        go_on.wait(10)

    stage = Stage()
    table = table_of(0.01, *(Scripted(script) for _ in range(handlers)))
    stage.offer((table, range(3)))
    stage.processors[0].start()
    inside.wait(10)
    running = stage.calls.current().values()
    assert sorted(call.handler for call in running) == [f"h{n}" for n in range(handlers)]
    go_on.set()
    stage.wait(lambda: table.finished_records == 3)
    stage.stop()
    assert stage.calls.current() == {}
