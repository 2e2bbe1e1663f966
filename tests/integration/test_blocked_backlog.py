"""A table that stands still, with more behind it than the lanes hold: what the worker tells, how it ends."""

from __future__ import annotations

from typing import Any

import pytest
from integration.letters import binlane, judging
from integration.process import WorkerProcess, eventually
from integration.source import Source
from integration.stage import Stage

from worker.local.broker import Broker

RECORDS = 6_000
SMALL: dict[str, Any] = {"count": 1, "max_records": 1_000}
NEVER = {"max_attempts": None, "initial_delay": "100ms", "max_delay": "200ms"}


def sent(stage: Stage) -> Source:
    source = stage.source()
    source.insert("orders", records=RECORDS)
    source.flush()
    return source


@pytest.mark.parametrize("trouble", ["its target is down", "it is tried for ever"])
def test_no_record_counts_as_work_for_another_worker_while_a_table_stands_still(
    stage: Stage, trouble: str
) -> None:
    source, gate = sent(stage), stage.gate()
    how: dict[str, Any] = (
        {"down_while": str(gate)}
        if trouble == "its target is down"
        else {"reject": {"shop.orders": "all"}, "reject_while": str(gate), "how": "error"}
    )
    table = {"match": "*", "handlers": [judging(stage, **how)], "retry": NEVER}
    worker = stage.worker(tables=[table], lanes=SMALL, stuck_after="1s").start()
    eventually(lambda: worker.metric("binlane_partition_blocked") == 1, what="nothing is read on")
    # The end of the partition is looked at every few seconds.
    eventually(
        lambda: (
            worker.metric("binlane_unfinished_records") + worker.metric("binlane_unread_records") == RECORDS
        ),
        what="all records are unfinished or unread",
    )
    # It stands still when its batch has failed for `stuck_after`. More may be read until then.
    eventually(
        lambda: (
            worker.metric("binlane_blocked_records")
            == worker.metric("binlane_unfinished_records")
            > SMALL["max_records"]
        ),
        what="those without room in the lanes count, too",
    )
    eventually(lambda: worker.metric("binlane_partition_paused") == 1)
    before = worker.metric("binlane_backpressure_seconds_total")
    eventually(lambda: worker.metric("binlane_backpressure_seconds_total") > before + 1, within=20)
    gate.unlink()
    eventually(lambda: stage.run.handled() == source.count)
    eventually(
        lambda: worker.metric("binlane_partition_blocked") == worker.metric("binlane_blocked_records") == 0,
        what="nothing is blocked any more",
    )


def fetched_or_unread(worker: WorkerProcess) -> float:
    return worker.metric("binlane_unfinished_records") + worker.metric("binlane_unread_records")


def ended(worker: WorkerProcess) -> str:
    """The error that it ended with, of itself."""
    assert worker.start(ready=False).wait(30) == 1
    [fault] = worker.logged("worker_fault")
    return str(fault["error"])


def test_a_halted_table_with_more_behind_it_than_the_lanes_hold_ends_each_worker_until_it_may_go_on(
    stage: Stage,
) -> None:
    source = sent(stage)
    handler = judging(stage, reject={"shop.orders": [0]})
    table = {"match": "*", "handlers": [handler]}
    worker = stage.worker(tables=[table], lanes=SMALL)
    for _ in range(2):
        assert "the lanes are full of records behind halted tables: shop.orders" in ended(worker)
    [halted] = worker.logged("table_halted")
    assert "offset 0" in halted["position"]
    place = [f"--topic={stage.topic}", "--partition=0", "--offset=1"]
    moved = binlane(worker, "checkpoint", "set", "CONFIG", *place)
    assert moved.returncode == 0, moved.stderr
    worker.start()
    eventually(lambda: stage.run.handled() == source.count - 1)
    assert worker.sigterm() == 0


@pytest.mark.parametrize(
    "rule", [pytest.param({"on_failure": "skip"}, marks=pytest.mark.soak), {"on_failure": "dead_letter"}]
)
def test_another_rule_for_the_table_lets_it_go_on(stage: Stage, broker: Broker, rule: dict[str, Any]) -> None:
    broker.create_topic(f"{stage.topic}.dead")
    source = sent(stage)
    table: dict[str, Any] = {"match": "*", "handlers": [judging(stage, reject={"shop.orders": [0]})]}
    worker = stage.worker(tables=[table], lanes=SMALL)
    ended(worker)
    worker.config["tables"] = [table | rule]
    worker.config["dead_letter"] = {"topic": f"{stage.topic}.dead", "max_ratio": 1}
    worker.start()
    eventually(lambda: stage.run.handled() == source.count - 1)
    assert worker.sigterm() == 0


def test_more_room_keeps_the_worker_alive_so_that_the_record_can_be_set_aside(stage: Stage) -> None:
    source = sent(stage)
    table = {"match": "*", "handlers": [judging(stage, reject={"shop.orders": [0]})]}
    worker = stage.worker(tables=[table], lanes=SMALL)
    ended(worker)
    worker.config["lanes"] = SMALL | {"max_records": 2 * RECORDS}
    worker.start()
    eventually(lambda: worker.table("shop.orders").get("state") == "blocked")
    done = binlane(worker, "unblock", str(worker.url), "--table=shop.orders", "--offset=0", "--skip")
    assert done.returncode == 0, done.stderr
    eventually(lambda: stage.run.handled() == source.count - 1)
    assert worker.sigterm() == 0
