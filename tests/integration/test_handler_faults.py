"""Handlers that raise: what they cost their own table, and that they cost no other."""

from __future__ import annotations

from typing import Any

from integration.checkers import NothingLost, NothingTwice, TableOrder
from integration.process import eventually
from integration.stage import Stage

QUICK = {"initial_delay": "20ms", "max_delay": "100ms"}


def fault_of(stage: Stage, **more: Any) -> dict[str, Any]:
    """All tables; row 5 of t0 is refused."""
    return {"match": "*", "handlers": [stage.recording(fail={"shop.t0": [5]}, **more)]}


def fill(stage: Stage) -> Any:
    source = stage.source()
    for _ in range(10):
        source.insert("t0")
        source.insert("t1")
    source.flush()
    return source


def test_a_table_that_fails_is_retried_while_the_others_go_on(stage: Stage) -> None:
    failing = stage.gate()
    table = fault_of(stage, fail_while=str(failing)) | {"retry": {"max_attempts": None, **QUICK}}
    source = fill(stage)
    worker = stage.worker(tables=[table], batch={"max_records": 1}, lanes={"count": 1}).start()

    eventually(lambda: worker.table("shop.t0").get("failed_batches", 0) >= 3)
    eventually(lambda: worker.table("shop.t1").get("finished_records") == 10)
    told = worker.table("shop.t0")
    assert told["state"] in ("retrying", "running", "queued")
    assert "row 5 of shop.t0 is refused" in told["error"]
    assert worker.metric("binlane_retries_total", table="shop.t0") >= 3
    assert worker.metric("binlane_handler_failures_total") >= 3
    assert worker.metric("binlane_tables_blocked") == 1
    assert worker.metric("binlane_tables_halted") == 0
    assert stage.committed()[0] <= 10, "row 5 of t0 is offset 10"

    failing.unlink()
    stage.wait_committed_to_the_end()
    eventually(lambda: worker.table("shop.t0")["error"] is None)
    assert worker.sigterm() == 0
    stage.check(NothingLost(source.rows), TableOrder(), NothingTwice())


def test_halt_blocks_the_table_alone_and_the_exit_code_tells(stage: Stage) -> None:
    table = fault_of(stage) | {"retry": {"max_attempts": 3, **QUICK}, "on_failure": "halt"}
    fill(stage)
    worker = stage.worker(tables=[table]).start()

    eventually(lambda: worker.table("shop.t0").get("state") == "blocked")
    eventually(lambda: worker.table("shop.t1").get("finished_records") == 10)
    eventually(lambda: stage.committed()[0] == 10, what="committed up to row 5 of t0")
    assert worker.status()["state"] == "halted"
    assert "row 5 of shop.t0 is refused" in worker.table("shop.t0")["error"]
    assert worker.table("shop.t0")["finished_records"] == 5
    assert worker.metric("binlane_tables_blocked") == 1
    assert worker.healthy()
    assert f"{stage.topic}[0] offset 10" in worker.log_text(), "the place of the change that failed"

    assert worker.sigterm() == 1
    assert stage.committed() == {0: 10}
    assert {row["seq"] for row in stage.run.rows() if row["table"] == "shop.t0"} == {0, 1, 2, 3, 4}


def test_skip_leaves_out_the_failing_change_alone(stage: Stage) -> None:
    table = fault_of(stage) | {"retry": {"max_attempts": 2, **QUICK}, "on_failure": "skip"}
    source = fill(stage)
    worker = stage.worker(tables=[table]).start()

    stage.wait_committed_to_the_end()
    assert worker.metric("binlane_records_skipped_total", reason="failed") == 1
    assert worker.metric("binlane_tables_blocked") == 0
    assert worker.sigterm() == 0
    assert set(stage.run.seqs()["shop.t0"]) == set(source.rows["shop.t0"]) - {5}
    assert stage.run.seqs()["shop.t1"] == source.rows["shop.t1"]


def test_a_blocked_table_is_tried_again_after_a_restart(stage: Stage) -> None:
    failing = stage.gate()
    table = fault_of(stage, fail_while=str(failing)) | {"retry": {"max_attempts": 2, **QUICK}}
    source = fill(stage)
    worker = stage.worker(tables=[table]).start()
    eventually(lambda: worker.table("shop.t0").get("state") == "blocked")
    eventually(lambda: worker.table("shop.t1").get("finished_records") == 10)
    assert worker.sigterm() == 1
    before = stage.run.mark()
    failing.unlink()

    worker.start()
    stage.wait_committed_to_the_end()
    assert worker.sigterm() == 0
    again = [event["seq"] for event in stage.run.events()[before:] if event["event"] == "row"]
    assert again == [5, 6, 7, 8, 9], "of t0, and nothing of t1"
    stage.check(NothingLost(source.rows))


def test_a_handler_that_cannot_open_stops_the_start(stage: Stage) -> None:
    missing = stage.folder / "no such folder" / "events.jsonl"
    worker = stage.worker(handlers=[{"type": "recording:Recording", "file": str(missing)}])

    assert worker.start(ready=False).wait() != 0
    assert str(missing) in worker.log_text()
