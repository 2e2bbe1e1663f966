"""`binlane pause` and `resume` on a running worker and a real broker."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime

from integration.checkers import NothingLost, NothingTwice, TableOrder
from integration.conftest import MakeStage
from integration.letters import binlane
from integration.process import WorkerProcess, eventually
from integration.stage import Stage


def ask(worker: WorkerProcess, command: str, *more: str) -> subprocess.CompletedProcess[str]:
    assert worker.url is not None
    return binlane(worker, command, worker.url, *more)


def handled(stage: Stage, table: str) -> int:
    return sum(row["table"] == table for row in stage.run.rows())


def test_a_paused_table_stops_no_other_and_stays_paused_after_a_kill(make_stage: MakeStage) -> None:
    stage = make_stage()
    source = stage.source()
    worker = stage.worker(
        tables=[{"match": "*", "handlers": [stage.recording()]}],
        lanes={"count": 2, "max_records": 200},
        stuck_after="1s",
    ).start()
    done = ask(worker, "pause", "--table", "shop.t0", "--reason", "its target is moved")
    assert (done.returncode, done.stderr) == (0, "")
    assert "its target is moved; tables that match so far: 0" in done.stdout
    for _ in range(100):
        source.insert("t0", records=10)
        source.insert("t1", records=10)
    source.flush()
    eventually(lambda: handled(stage, "shop.t1") == 1_000, what="the other table is handled")
    assert handled(stage, "shop.t0") == 0
    eventually(lambda: worker.metric("binlane_blocked_records") == 1_000, what="all is read")
    assert worker.metric("binlane_parked_records") >= 800
    table = worker.table("shop.t0")
    assert table["state"] == "paused"
    assert "since" in table["error"]
    assert worker.metric("binlane_tables_blocked") == 1
    assert worker.metric("binlane_tables_halted") == worker.metric("binlane_tables_target_down") == 0
    [paused] = worker.logged("table_paused")
    assert {key: paused[key] for key in ("table", "reason", "client")} == {
        "table": "shop.t0",
        "reason": "its target is moved",
        "client": "127.0.0.1",
    }
    labels = {"pattern": "shop.t0", "handler": "", "by": paused["by"]}
    assert worker.metric("binlane_table_paused_seconds", **labels) > 0
    place = {"topic": stage.topic, "partition": "0"}
    eventually(lambda: worker.metric("binlane_head_paused_seconds", **place) > 1, what="and known")
    assert worker.metric("binlane_head_stuck_seconds", **place) == 0
    assert worker.logged("head_stuck") == []
    worker.kill9()
    source.insert("t0", records=10)
    source.insert("t1", records=10)
    source.flush()
    worker.start()
    eventually(lambda: handled(stage, "shop.t1") == 1_010, what="the other table continues")
    eventually(lambda: worker.metric("binlane_blocked_records") == 1_010, what="all is read again")
    assert handled(stage, "shop.t0") == 0
    assert worker.status()["state"] == "running"
    [pause] = worker.status()["pauses"]
    assert (pause["table"], pause["by"], pause["until"]) == ("shop.t0", paused["by"], None)
    wrong = ask(worker, "resume", "--table", "shop.*")
    assert wrong.returncode == 1
    assert f"Pauses: shop.t0 paused by {paused['by']} since" in wrong.stderr
    assert ask(worker, "resume", "--table", "shop.t0").returncode == 0
    eventually(lambda: handled(stage, "shop.t0") == 1_010, what="it continues")
    stage.wait_committed_to_the_end()
    assert worker.status()["pauses"] == []
    stage.check(NothingLost(source.rows), NothingTwice(), TableOrder())
    assert worker.sigterm() == 0


def test_a_pause_ends_by_itself(make_stage: MakeStage) -> None:
    stage = make_stage()
    source = stage.source()
    worker = stage.worker().start()
    assert ask(worker, "pause", "--table", "shop.*", "--for", "3s").returncode == 0
    [pause] = worker.logged("table_paused")
    until = datetime.fromisoformat(pause["until"])
    source.insert("t0", records=10)
    source.flush()

    def is_paused() -> bool:  # a slow machine may look too late
        return worker.table("shop.t0").get("state") == "paused" or datetime.now(UTC) >= until

    eventually(is_paused, what="it is paused")
    stage.wait_rows(10)
    assert datetime.now(UTC) >= until
    eventually(lambda: worker.logged("table_resumed"), what="that is logged")
    assert worker.logged("table_resumed")[0]["expired"] is True
    assert worker.sigterm() == 0
