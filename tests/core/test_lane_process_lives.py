"""The life of child processes: started, replaced and ended, also when that fails. Nothing is left of them."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from process_limits import no_more_open_files
from process_stage import ProcessStage
from processing import NOW
from structlog.testing import capture_logs

from handlers.metrics import NO_METRICS
from worker.processes import beginning, process, slot
from worker.processes.messages import Listener
from worker.running.handler_set import HandlerOpenError
from worker.units.unit import UnitState
from worker.units.work import Work

Make = Callable[..., ProcessStage]
Entry = Callable[..., dict[str, Any]]


def files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def present(stage: ProcessStage) -> process.Process:
    found = stage.processes._slots[0].present
    assert found is not None
    return found


def test_a_process_that_ends_while_a_handler_opens_is_started_again(
    make: Make, writing: Entry, tmp_path: Path
) -> None:
    (once := tmp_path / "once").touch()
    stage = make({"handlers": [writing("DyingInOpen", once=str(once))]})
    assert len({line["pid"] for line in stage.events("open")}) == 3
    orders = stage.unit("orders")
    stage.offer((orders, [0]))
    stage.run(orders)
    assert stage.ids("orders") == [[0]]


def test_a_handler_whose_opening_always_ends_its_process_ends_the_start(make: Make, writing: Entry) -> None:
    with pytest.raises(HandlerOpenError, match="lane process 0 "):
        make({"handlers": [writing("DyingInOpen")]}, start_timeout="2s")


def test_processes_that_a_reload_could_not_start_are_started_by_the_next_one(
    make: Make, writing: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = make({"handlers": [writing("InWorker")]}, processes=3)
    after = stage.configured(
        {"handlers": [writing()]}, lanes={"processes": 3, "count": 2}, start_timeout="5s"
    )
    with ExitStack() as held:
        real = beginning.begun

        def begun() -> beginning.Begun:
            if stage.pids():  # the first one has what it needs
                held.enter_context(no_more_open_files())
            return real()

        with monkeypatch.context() as patched:
            patched.setattr(process, "begun", begun)
            with pytest.raises(HandlerOpenError, match="Too many open files"):
                stage.handlers.plan(after)
    assert len(stage.pids()) == 1
    stage.handlers.adopt(stage.handlers.plan(after))
    assert len(stage.pids()) == 3


def test_a_process_that_ends_before_anybody_has_it_is_started_again() -> None:
    ended = threading.Event()

    def make(gone: Callable[[process.Process], None]) -> process.Process:
        def note(one: process.Process) -> None:
            gone(one)
            ended.set()

        first = not ended.is_set()
        made = process.Process(0, Listener(NO_METRICS, print, print), note)
        if first:
            os.kill(made.pid, signal.SIGKILL)
            assert ended.wait(30)
        return made

    ready = threading.Event()
    own = slot.Slot(0, make, ready=ready.set, ended=lambda: None)
    own.start()
    assert ready.wait(30)
    assert own.process.ask("kept") == 0
    own.close()


def test_a_process_that_cannot_be_connected_is_ended(
    make: Make, writing: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = make({"handlers": [writing()]}, processes=1)
    [old] = stage.pids()
    failed: list[process.Process] = []
    connect = process.Process._connect

    def fails(self: process.Process, kind: bytes) -> Any:
        if len(failed) < 3:
            failed.append(self)
            raise OSError("no")
        return connect(self, kind)

    before = files()
    monkeypatch.setattr(process.Process, "_connect", fails)
    stage.kill(old)
    assert len(failed) == 3
    assert not any(Path(f"/proc/{each.pid}").exists() for each in failed)
    failed.clear()
    stage.wait(lambda: files() <= before)


def test_a_batch_that_ended_its_process_holds_no_others_up_while_it_waits(
    make: Make, writing: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot, "_ASKED_SECONDS", 1000.0)
    retry = NOW | {"initial_delay": "300s", "max_delay": "300s"}
    stage = make({"handlers": [writing(does={"0": "die"})], "retry": retry}, processes=1)
    orders, items = stage.unit("orders"), stage.unit("items")
    stage.offer((orders, [0]))
    stage.start()
    stage.wait(lambda: orders.failed_batches == 1)
    stage.offer((items, [1]))
    stage.wait(lambda: stage.ids("items") == [[100]])


@pytest.mark.parametrize(("what", "how"), [("crash", "SIGSEGV"), ("exit", "exit code 137")])
def test_each_end_is_a_failed_attempt(
    make: Make, writing: Entry, tmp_path: Path, what: str, how: str
) -> None:
    (once := tmp_path / "once").touch()
    stage = make({"handlers": [writing(does={"0": what}, once=str(once))], "retry": NOW}, processes=1)
    orders = stage.unit("orders")
    stage.offer((orders, [0]))
    with capture_logs() as logs:
        stage.run(orders)
    assert stage.events()[0]["attempt"] == 2
    assert [log["how"] for log in logs if log["event"] == "lane_process_ended"] == [how]


def test_handlers_of_a_replaced_process_are_closed_though_no_other_can_be_started(
    make: Make, writing: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = make({"handlers": [writing()]}, processes=1)
    [own], [old] = stage.processes._slots, stage.pids()
    with monkeypatch.context() as patched:
        patched.setattr(beginning.subprocess, "Popen", lambda *_, **__: os.open("/none", 0))
        own.retire()
        stage.wait(lambda: stage.events("close"))
    stage.wait(lambda: stage.pids() not in ([], [old]))
    assert [line["pid"] for line in stage.events("close")] == [old]


@pytest.mark.parametrize(("kind", "count"), [("InWorker", 0), ("Writing", 2)])
def test_a_worker_starts_processes_only_if_it_has_handlers_for_them(
    writing: Entry, tmp_path: Path, kind: str, count: int
) -> None:
    program = f"""
from pathlib import Path
from building import configuration
from process_stage import self_secrets
from worker.running.worker import Worker
rule, folder = {{"handlers": [{writing(kind)!r}]}}, {{"directory": {str(tmp_path)!r}}}
read = configuration(rule, lanes={{"processes": 2}}, checkpoint=folder)
worker = Worker(read.read_from(Path({__file__!r}), self_secrets()))
slots = worker.components.processes._slots
worker._start_http = lambda: print(sum(slot.present is not None for slot in slots), flush=True)
worker._open_handlers = worker.stop
worker.run()
"""
    path = ":".join(filter(None, sys.path))
    told = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert told.stdout.split()[:1] == [str(count)], told.stderr


def test_the_end_of_a_process_that_was_replaced_is_told_if_it_was_not_ended(
    make: Make, writing: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (once := tmp_path / "once").touch()
    seen: list[int] = []
    gone = slot.Slot._gone

    def noted(own: slot.Slot, process: process.Process) -> None:
        gone(own, process)
        seen.append(process.pid)

    monkeypatch.setattr(slot.Slot, "_gone", noted)
    stage = make({"handlers": [writing(does={"0": "hang"}, once=str(once))]}, processes=1)
    [own] = stage.processes._slots
    orders = stage.unit("orders")
    stage.offer((orders, [0]))
    stage.start()
    stage.wait(lambda: not once.exists())
    [first] = stage.pids()
    with capture_logs() as logs:
        own.retire()
        stage.wait(lambda: stage.pids() not in ([first], []))
        [second] = stage.pids()
        os.kill(first, signal.SIGKILL)
        stage.wait(lambda: stage.checkpoint() is not None and orders.state is UnitState.IDLE)
        own.retire()
        stage.wait(lambda: second in seen)
    ended = [(log["pid"], log["tables"]) for log in logs if log["event"] == "lane_process_ended"]
    assert ended == [(first, ["shop.orders"])]
    assert stage.counted("binlane_lane_processes_ended_total 1.0")


def test_handlers_see_the_environment_of_the_worker(
    make: Make, writing: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_WORKER", "v4lue")
    stage = make({"handlers": [writing(does={"0": "environment"})]}, processes=1)
    orders = stage.unit("orders")
    stage.offer((orders, [0]))
    stage.run(orders)
    assert [line["value"] for line in stage.events("environment")] == ["v4lue"]
    assert b"v4lue" not in Path(f"/proc/{stage.pids()[0]}/cmdline").read_bytes()


def test_looks_into_a_stopped_process_take_one_thread(
    make: Make, writing: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_LOOK_SECONDS", 0.1)
    stage = make({"handlers": [writing(does={"0": "hang"})]}, processes=1, lanes=1)
    orders = stage.unit("orders")
    stage.offer((orders, [0]))
    stage.start()
    stage.wait(stage.calls.current)
    time.sleep(0.2)
    [pid] = stage.pids()
    [(thread, call)] = stage.calls.current().items()
    os.kill(pid, signal.SIGSTOP)
    before = threading.active_count(), files()
    looks = [stage.calls.stack(thread, call) or "" for _ in range(5)]
    after = threading.active_count(), files()
    os.kill(pid, signal.SIGCONT)
    assert all("(no answer)" in look for look in looks)
    assert (after[0] - before[0], after[1] - before[1]) <= (1, 1)
    stage.wait(lambda: "in _hang" in (stage.calls.stack(thread, call) or "in _hang"))


def test_nothing_is_left_of_connections_that_were_lost(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing()]}, processes=1)
    child = present(stage)
    for _ in range(5):
        for frames in list(child._connections)[1:]:
            frames.shut()
        with pytest.raises((EOFError, OSError)):
            child.ask("kept")
        assert child.ask("kept") == 0
    assert len(child._connections) == 2, "that of events, and the last one"


def test_a_batch_that_met_no_process_is_in_no_cycle(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing()]}, processes=1, lanes=1)
    [own], orders = stage.processes._slots, stage.unit("orders")
    old, own._process = own._process, None
    gc.collect()
    gc.disable()
    try:
        stage.offer((orders, [0]))
        stage.start()
        stage.wait(lambda: orders.blocked)
        own._process = old
        stage.wait(lambda: orders.finished_records == 1)
        stage.stop()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        assert [each for each in gc.garbage if isinstance(each, Work)] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("deaths", [8, pytest.param(200, marks=pytest.mark.soak)])
def test_nothing_is_left_of_processes_that_ended(
    make: Make, writing: Entry, tmp_path: Path, deaths: int
) -> None:
    once, deadly = tmp_path / "once", {str(100 * number): "die" for number in range(deaths)}
    handlers = [writing(does=deadly, once=str(once))]
    stage = make({"handlers": handlers, "retry": NOW}, processes=1, lanes=1)
    orders = stage.unit("orders")
    stage.start()
    told: list[tuple[int, int]] = []
    gc.collect()
    gc.disable()  # a worker collects what is in cycles only after many batches
    try:
        for offset in range(deaths):
            if offset % 2:
                os.kill(stage.pids()[0], signal.SIGKILL)  # the batch comes while there is none
            else:
                once.touch()
            stage.offer((orders, [offset]))
            stage.wait(lambda offset=offset: orders.finished_records == offset + 1)
            assert not once.exists()
            told.append((files(), threading.active_count()))
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        kept = [each for each in gc.garbage if isinstance(each, Work | process.Process)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert kept == []
    assert max(told[3:])[0] <= told[2][0] + 1
    assert max(count for _, count in told[3:]) <= told[2][1] + 1
    assert len(stage.processes._slots[0]._ended) <= 1


def test_a_process_that_ends_while_it_is_started_says_how() -> None:
    gc.collect()  # what an earlier test left may close now
    before = files()
    own = beginning.begun()
    own.child.kill()
    own.child.wait()
    with pytest.raises(OSError, match=r"^it ended at its start: SIGKILL$"):
        process.Process(0, Listener(NO_METRICS, fail=pytest.fail, rebuilt=pytest.fail), pytest.fail, own)
    assert files() <= before
