"""Whole runs whose batches are handled in child processes: some are killed, and nothing is lost."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from integration.checkers import NeverTwoAtOnce, NothingLost, NothingTwiceButWhatRan, TableOrder
from integration.conftest import MakeStage
from integration.process import WorkerProcess, eventually

PROCESSES = {"count": 8, "processes": 2}


def children(worker: WorkerProcess) -> list[int]:
    assert worker.process is not None
    pid = worker.process.pid
    found: list[int] = []
    # The first ones are of the main thread, later ones of others.
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended
            found += map(int, (task / "children").read_text().split())
    return found


def test_processes_that_are_killed_lose_nothing_and_keep_the_order(make_stage: MakeStage) -> None:
    stage = make_stage(partitions=2)
    source = stage.source()
    for _ in range(200):
        for table in range(6):
            source.insert(f"t{table}", rows=3)
    source.flush()
    worker = stage.worker(
        handlers=[stage.recording(row_sleep=0.002)], lanes=PROCESSES, batch={"max_records": 10}
    ).start()
    for _ in range(3):
        before = stage.run.handled()
        stage.wait_rows(before + 100)
        victim = children(worker)[0]
        os.kill(victim, signal.SIGKILL)
        eventually(lambda victim=victim: victim not in children(worker))
        stage.run.note_end_of(f"worker:{victim}")
    stage.wait_committed_to_the_end()
    assert worker.metric("binlane_lane_processes_ended_total") == 3
    assert len({event["process"] for event in stage.run.rows()}) >= 4, "two, and those after the killed ones"
    assert worker.sigterm() == 0
    assert stage.committed() == stage.ends()
    stage.check(NothingLost(source.rows), TableOrder(), NothingTwiceButWhatRan())


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_its_worker(make_stage: MakeStage, how: signal.Signals) -> None:
    stage = make_stage()
    source = stage.source()
    source.insert("t0")
    source.flush()
    worker = stage.worker(lanes=PROCESSES).start()
    stage.wait_rows(1)
    pids = children(worker)
    assert len(pids) == 2
    assert worker.process is not None
    worker.expected_to_end = True
    os.kill(worker.process.pid, how)
    assert worker.wait() == (0 if how is signal.SIGTERM else -signal.SIGKILL)
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), within=5)


def test_ctrl_c_ends_the_worker_and_not_its_processes(make_stage: MakeStage) -> None:
    stage = make_stage()
    source = stage.source()
    source.insert("t0", records=200)
    source.flush()
    worker = stage.worker(handlers=[stage.recording(row_sleep=0.005)], lanes=PROCESSES).start()
    stage.wait_rows(20)
    assert worker.process is not None
    worker.expected_to_end = True
    os.killpg(worker.process.pid, signal.SIGINT)
    assert worker.wait() == 0
    stage.check(TableOrder(), NeverTwoAtOnce())
    assert stage.committed()[0] == stage.run.handled()


def test_a_rule_that_changes_is_applied_in_the_processes(make_stage: MakeStage) -> None:
    stage = make_stage()
    source = stage.source()
    worker = stage.worker(lanes=PROCESSES).start()
    source.insert("t0", records=5)
    source.flush()
    stage.wait_rows(5)
    [table] = worker.config["tables"]
    table["handlers"] = [stage.recording(row_sleep=0.001)]
    table["filter"] = "seq < 7"
    (worker.folder / "binlane.yaml").write_text(yaml.safe_dump(worker.config))
    eventually(lambda: worker.logged("reloaded"))
    source.insert("t0", records=5)
    source.flush()
    stage.wait_committed_to_the_end()
    assert worker.sigterm() == 0
    ops = [(row["offset"], row["op"]) for row in stage.run.rows()]
    assert ops == [*((n, "insert") for n in range(7)), *((n, "delete") for n in range(7, 10))]
    assert [event["event"] for event in stage.run.events()].count("close") == 4
