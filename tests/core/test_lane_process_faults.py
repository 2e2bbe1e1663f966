"""Child processes that are killed, stopped, cut off or late: what the worker then does and does not do."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest
from building import chunk, configuration, record, work
from process_limits import no_more_open_files
from process_stage import ProcessStage
from processing import NOW
from structlog.testing import capture_logs

from offsets.types import Checkpoint
from worker.attempts.steps import ProcessAway
from worker.processes import beginning, process
from worker.processes.messages import Frames
from worker.processes.opened import Batches
from worker.units.unit import Unit, UnitState

Make = Callable[..., ProcessStage]
Entry = Callable[..., dict[str, Any]]


def present(stage: ProcessStage) -> process.Process:
    found = stage.processes._slots[0].present
    assert found is not None
    return found


def stop(pid: int) -> None:
    """Return when all its threads have stopped."""
    os.kill(pid, signal.SIGSTOP)
    while any(") T " not in stat.read_text() for stat in Path(f"/proc/{pid}/task").glob("*/stat")):
        time.sleep(0.001)


def test_a_record_whose_decoding_ends_the_process_may_be_skipped(
    make: Make, writing: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = beginning._PROGRAM.replace("main(", "from process_handlers import poison; poison(); main(")
    monkeypatch.setattr(beginning, "_PROGRAM", program)
    stage = make({"handlers": [writing()]}, processes=1, on_undecodable="skip")
    orders = stage.unit("orders")
    stage.offer((orders, range(2, 5)))
    stage.run(orders, seconds=60)
    assert orders.state is UnitState.IDLE
    assert [number for ids in stage.ids("orders") for number in ids] == [200, 400]
    assert stage.counted('binlane_records_skipped_total{reason="undecodable"} 1.0')


def test_a_worker_without_free_files_kills_no_process(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing(does={"0": "hang"})]}, processes=1)
    orders, items = stage.unit("orders"), stage.unit("items")
    stage.offer((orders, [0]))
    stage.start()
    stage.wait(stage.calls.current)
    time.sleep(0.2)
    with no_more_open_files():
        stage.offer((items, [1]))
        stage.wait(lambda: items.state is UnitState.BACKOFF)
    stage.wait(lambda: stage.checkpoint() == Checkpoint(2))
    assert stage.ids("orders") == [[0]]
    assert {line["pid"] for line in stage.events()} == set(stage.pids())


def test_the_stack_is_that_of_the_call_after_a_connection_could_not_be_made(
    make: Make, writing: Entry
) -> None:
    stage = make({"handlers": [writing(does={"100": "hang"})]}, processes=1)
    orders = stage.unit("orders")
    own = present(stage)
    free = own._free.pop()
    with no_more_open_files(), pytest.raises(ProcessAway, match="cannot be asked"):
        own.ask("kept")
    stage.offer((orders, [1]))
    stage.start()
    stage.wait(stage.calls.current)
    time.sleep(0.5)
    [(thread, call)] = stage.calls.current().items()
    own._free.append(free)
    assert "in _hang" in (stage.calls.stack(thread, call) or "")


def test_a_handler_that_opens_for_long_holds_up_no_other(make: Make, writing: Entry, tmp_path: Path) -> None:
    gate = tmp_path / "once"
    late = {"match": "shop.late*", "handlers": [writing("SlowToOpen", once=str(gate))]}
    stage = make(late, {"handlers": [writing(name="other")]}, processes=1, lanes=2)
    [old] = stage.pids()
    gate.touch()
    stage.kill(old)
    first, second, orders = stage.unit("late1"), stage.unit("late2"), stage.unit("orders")
    stage.offer((first, [0]), (second, [1]))
    stage.start()
    stage.wait(lambda: len(stage.events("open")) == 3)
    stage.offer((orders, [2]))
    stage.wait(lambda: orders.finished_records == 1)
    gate.unlink()
    stage.wait(lambda: (first.finished_records, second.finished_records) == (1, 1))
    assert len(stage.events("open", handler=late["handlers"][0]["type"])) == 2, "once in each process"


def test_a_suspect_whose_handler_opens_for_long_holds_up_no_other(
    make: Make, writing: Entry, tmp_path: Path
) -> None:
    gate = tmp_path / "once"
    late = {"match": "shop.late", "handlers": [writing("SlowToOpen", once=str(gate))]}
    stage = make(late, {"handlers": [writing(name="other")]}, processes=1, lanes=2)
    [own], [old] = stage.processes._slots, stage.pids()
    gate.touch()
    stage.kill(old)
    own._suspects.update(("shop.late", "shop.orders"))
    first, orders, items = stage.unit("late"), stage.unit("orders"), stage.unit("items")
    stage.offer((first, [0]))
    stage.start()
    stage.wait(lambda: len(stage.events("open")) == 3)
    stage.offer((orders, [1]), (items, [2]))
    stage.wait(lambda: (orders.finished_records, items.finished_records) == (1, 1))
    gate.unlink()
    stage.wait(lambda: first.finished_records == 1)


def test_an_opening_that_ended_its_process_is_tried_alone(make: Make, writing: Entry, tmp_path: Path) -> None:
    once = tmp_path / "once"
    dying = {"match": "shop.late", "handlers": [writing("DyingInOpen", once=str(once))]}
    stage = make(dying, {"handlers": [writing(does={"0": "hang"}, name="other")]}, processes=1, lanes=2)
    first, orders = stage.unit("late"), stage.unit("orders")
    stage.kill(stage.pids()[0])
    stage.offer((orders, [0]))
    stage.start()
    stage.wait(stage.calls.current)
    once.touch()
    stage.offer((first, [1]))
    stage.wait(lambda: not once.exists())
    stage.wait(lambda: (orders.finished_records, first.finished_records) == (1, 1))
    assert (orders.failed_batches, first.failed_batches) == (0, 0)


def test_a_process_whose_connection_is_lost_is_replaced(
    make: Make, writing: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_END_SECONDS", 0.5)
    stage = make({"handlers": [writing(does={"0": "hang"})]}, processes=1, lanes=1)
    [old] = stage.pids()
    orders = stage.unit("orders")
    stage.offer((orders, [0]))
    stage.start()
    stage.wait(stage.calls.current)
    time.sleep(0.2)
    for frames in present(stage)._connections[1:]:
        frames.shut()
    stage.wait(lambda: orders.finished_records == 1)
    assert [line["pid"] for line in stage.events()] == stage.pids()
    assert stage.pids() != [old]
    assert not Path(f"/proc/{old}").exists(), "or its call would go on beside the other one"


def test_a_forked_process_hides_no_end(make: Make, writing: Entry, tmp_path: Path) -> None:
    (once := tmp_path / "once").touch()
    stage = make({"handlers": [writing(does={"0": "fork"}, once=str(once))], "retry": NOW}, processes=1)
    orders = stage.unit("orders")
    stage.offer((orders, [0]))
    stage.run(orders, seconds=20)
    assert stage.events()[0]["attempt"] == 2


def test_errors_of_threads_reach_the_log_and_nothing_else(
    make: Make, writing: Entry, capfd: pytest.CaptureFixture[str]
) -> None:
    stage = make({"handlers": [writing(does={"0": "thread"})]}, processes=1)
    orders = stage.unit("orders")
    stage.offer((orders, [0]))
    with capture_logs() as logs:
        stage.run(orders)
        stage.wait(lambda: any(log["event"] == "unhandled_error" for log in logs))
    assert "s3cret" not in capfd.readouterr().err, "the log replaces secrets"


def test_a_process_that_hangs_or_ends_keeps_no_release_from_the_others(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing()]})
    stopped, other = stage.pids()
    stop(stopped)
    releasing = threading.Thread(target=stage.handlers.release, args=([("t", 1)], 10.0))
    with capture_logs() as logs:
        releasing.start()
        stage.wait(lambda: stage.events("release"))
        os.kill(stopped, signal.SIGKILL)
        releasing.join(10)
    assert not releasing.is_alive()
    assert [line["pid"] for line in stage.events("release")] == [other]
    assert not [log for log in logs if log["event"].startswith("handler_release")]


def test_nothing_begins_after_a_long_opening_without_another_look(
    make: Make, writing: Entry, tmp_path: Path
) -> None:
    gate = tmp_path / "once"
    stage = make({"handlers": [writing("SlowToOpen", once=str(gate))]}, processes=1, lanes=1)
    [old] = stage.pids()
    gate.touch()
    os.kill(old, signal.SIGKILL)
    stage.wait(lambda: stage.pids() not in ([old], []))
    orders = stage.unit("orders")
    stage.offer((orders, [0]))
    stage.start()
    stage.wait(lambda: len(stage.events("open")) == 2)
    stage.partition.closed = True
    gate.unlink()
    time.sleep(0.5)
    stage.stop()
    assert stage.events() == []


def test_a_stopped_process_begins_no_call_after_the_session(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing()]}, processes=1, lanes=1)
    orders, lane = stage.unit("orders"), stage.lanes.lanes[0]
    [pid] = stage.pids()
    stop(pid)
    stage.lanes.trust(time.monotonic() + 2.0)
    stage.offer((orders, [0]))
    stage.processors[0].start()
    stage.wait(lambda: lane.running)
    stage.wait(lambda: not stage.lanes.trusted)
    os.kill(pid, signal.SIGCONT)
    stage.wait(lambda: not lane.running)
    assert stage.events() == []
    stage.lanes.trust(inf)
    stage.wait(stage.events)
    stage.stop()
    assert stage.ids("orders") == [[0]]
    assert stage.events(attempt=1), "it was no attempt"


def revoke(stage: ProcessStage, orders: Unit, patience: float = 0.1) -> None:
    """Of the stage's partition, whose batch still runs afterwards."""
    stage.partition.closed = True
    assert stage.lanes.withdraw([orders], {stage.partition}, patience) == ["shop.orders"]
    stage.calls.let_go()


def test_a_stopped_process_begins_no_call_after_the_revocation(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing()]}, processes=1, lanes=1)
    orders, lane = stage.unit("orders"), stage.lanes.lanes[0]
    [pid] = stage.pids()
    stop(pid)
    stage.offer((orders, [0]))
    stage.processors[0].start()
    stage.wait(lambda: process.asking)
    revoke(stage, orders)
    os.kill(pid, signal.SIGCONT)
    stage.wait(lambda: not lane.running)
    assert stage.events() == []
    stage.stop()
    assert stage.pids() == [pid]


def test_a_lane_waits_for_no_stopped_process_with_half_of_a_call_that_was_withdrawn(
    make: Make, writing: Entry
) -> None:
    stage = make({"handlers": [writing()], "batch": {"max_records": 2000}}, processes=1, lanes=1)
    orders, lane = stage.unit("orders"), stage.lanes.lanes[0]
    [pid] = stage.pids()
    stop(pid)
    stage.offer((orders, range(2000)))
    stage.processors[0].start()
    stage.wait(lambda: process.asking)
    revoke(stage, orders, patience=0.5)
    stage.wait(lambda: not lane.running)
    os.kill(pid, signal.SIGCONT)
    stage.stop()
    assert present(stage).ask("kept") == 0
    assert (stage.events(), stage.pids()) == ([], [pid])


def test_a_call_that_has_begun_is_answered_after_the_revocation(
    make: Make, writing: Entry, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    stage = make(
        {"handlers": [writing(does={"0": "wait for the file"}, once=str(gate))]}, processes=1, lanes=1
    )
    orders, lane = stage.unit("orders"), stage.lanes.lanes[0]
    [pid] = stage.pids()
    gate.touch()
    stage.offer((orders, [0]))
    stage.processors[0].start()
    stage.wait(lambda: not gate.exists())
    revoke(stage, orders)
    time.sleep(0.2)
    assert lane.running
    gate.touch()
    stage.wait(lambda: not lane.running)
    stage.stop()
    assert (stage.ids("orders"), stage.pids()) == ([[0]], [pid])
    assert present(stage).ask("kept") == 1, "it answers"


def test_a_call_that_is_answered_during_the_revocation_ends_no_later_request(
    make: Make, writing: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    stage = make(
        {"handlers": [writing(does={"0": "wait for the file"}, once=str(gate))]}, processes=1, lanes=1
    )
    orders, lane = stage.unit("orders"), stage.lanes.lanes[0]
    end_requests = Frames.end_requests

    def late(frames: Frames) -> None:
        gate.touch()
        end = time.monotonic() + 1.0
        while lane.running and time.monotonic() < end:
            time.sleep(0.01)
        end_requests(frames)

    monkeypatch.setattr(Frames, "end_requests", late)
    gate.touch()
    stage.offer((orders, [0]))
    stage.processors[0].start()
    stage.wait(lambda: not gate.exists())
    revoke(stage, orders)
    stage.wait(lambda: not lane.running)
    stage.stop()
    assert present(stage).ask("kept") == 1, "as the handlers are told of the revocation"


def test_a_process_forgets_what_is_told_while_another_batch_runs_alone(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing()]}, processes=1, lanes=1)
    own = stage.processes._slots[0]
    orders = stage.unit("orders")
    batches = [work(orders, chunk(stage.partition, [record(n)])) for n in range(3)]
    assert batches[0].decode(lambda _record, _fault: False) is None
    batches[0].forget_rows()
    own._suspects.add("shop.items")
    own._asked["shop.items"] = time.monotonic()
    with pytest.raises(ProcessAway):
        batches[1].decode(lambda _record, _fault: False)
    with own.calling("shop.items"):
        pass
    assert batches[2].decode(lambda _record, _fault: False) is None
    assert present(stage).ask("kept") == 1


def test_stopped_processes_end_together(make: Make, writing: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_END_SECONDS", 2.0)
    stage = make({"handlers": [writing()]}, processes=4)
    for pid in stage.pids():
        stop(pid)
    begin = time.monotonic()
    stage.processes.close()
    assert time.monotonic() - begin < 6, "one after the other they take 8 seconds"


def test_a_stopped_process_ends_with_its_worker() -> None:
    program = """
import os, signal
from pathlib import Path
from worker.processes.messages import Listener
from worker.processes.process import Process
child = Process(0, Listener(None, print, print), print)
child.ask("kept")
os.kill(child.pid, signal.SIGSTOP)
while ") T " not in Path(f"/proc/{child.pid}/stat").read_text(): pass
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        pid = int(worker.stdout.readline())
        worker.wait()
        stat = Path(f"/proc/{pid}/stat")
        end = time.monotonic() + 5
        while stat.exists() and ") Z " not in stat.read_text():
            if time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
                pytest.fail("it is there 5 s after its worker")
            time.sleep(0.01)


def test_a_table_described_after_a_reload_follows_its_rules() -> None:
    orders = {"match": "shop.orders", "handlers": [{"type": "log"}], "columns": {"exclude": ["note"]}}
    items = {"match": "shop.items", "handlers": [{"type": "log"}]}
    before = configuration(orders, items)
    after = configuration(orders, {**items, "columns": {"exclude": ["secret"]}})
    batches = Batches(rebuilt=lambda: None)
    batches.configure(pickle.dumps(before))
    batches.configure(pickle.dumps(after))
    table = batches._table(pickle.dumps(before.tables[0]), "shop", "orders")
    rule = batches.configuration.rule_for("shop.orders")
    assert rule is not None
    assert rule.statement_rules is not None
    assert table.statement_rules is rule.statement_rules


def test_a_process_that_is_started_says_nothing_of_the_target(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing(does={"0": "down"})], "retry": NOW}, processes=1, lanes=1)
    [old] = stage.pids()
    orders = stage.unit("orders")
    stage.offer((orders, [0]))
    with capture_logs() as logs:
        stage.start()
        stage.wait(lambda: any(log["event"] == "target_down" for log in logs))
        os.kill(old, signal.SIGKILL)
        stage.wait(lambda: stage.pids() not in ([old], []))
        time.sleep(0.5)
    assert [log["event"] for log in logs if log["event"].startswith("target")] == ["target_down"], logs
