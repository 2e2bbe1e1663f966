"""A table that stands still, with more behind it than the lanes hold: what the worker shows, what helps."""

from __future__ import annotations

from typing import Any

import pytest
from integration.letters import binlane, judging
from integration.process import eventually
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
    worker = stage.worker(tables=[table], lanes=SMALL | {"parked": "100KiB"}).start()
    eventually(lambda: worker.metric("binlane_partition_blocked") == 1, what="nothing is read on")
    # The end of the partition is looked at every few seconds.
    eventually(
        lambda: (
            worker.metric("binlane_unfinished_records") + worker.metric("binlane_unread_records") == RECORDS
        ),
        what="all records are unfinished or unread",
    )
    # More may be read in between.
    eventually(
        lambda: 0 < worker.metric("binlane_blocked_records") == worker.metric("binlane_unfinished_records"),
        what="those without room in the lanes count, too",
    )
    eventually(lambda: worker.metric("binlane_partition_paused") == 1)
    gate.unlink()
    eventually(lambda: stage.run.handled() == source.count)
    eventually(
        lambda: worker.metric("binlane_partition_blocked") == worker.metric("binlane_blocked_records") == 0,
        what="nothing is blocked any more",
    )


@pytest.mark.parametrize(
    "rule", [pytest.param({"on_failure": "skip"}, marks=pytest.mark.soak), {"on_failure": "dead_letter"}]
)
def test_another_rule_for_the_table_lets_it_go_on(stage: Stage, broker: Broker, rule: dict[str, Any]) -> None:
    broker.create_topic(f"{stage.topic}.dead")
    source = sent(stage)
    table: dict[str, Any] = {"match": "*", "handlers": [judging(stage, reject={"shop.orders": [0]})]}
    worker = stage.worker(tables=[table], lanes=SMALL).start()
    eventually(
        lambda: worker.metric("binlane_parked_records") > RECORDS - 1_000, what="it is read to its end"
    )
    assert worker.sigterm() == 1, "a table is halted"
    worker.config["tables"] = [table | rule]
    worker.config["dead_letter"] = {"topic": f"{stage.topic}.dead", "max_ratio": 1}
    worker.start()
    eventually(lambda: stage.run.handled() == source.count - 1)
    assert worker.sigterm() == 0


def test_the_record_can_be_set_aside_however_much_waits_behind_it(stage: Stage) -> None:
    source = sent(stage)
    table = {"match": "*", "handlers": [judging(stage, reject={"shop.orders": [0]})]}
    worker = stage.worker(tables=[table], lanes=SMALL).start()
    eventually(lambda: worker.metric("binlane_blocked_records") == RECORDS, what="all is read")
    assert worker.table("shop.orders")["state"] == "blocked"
    done = binlane(worker, "unblock", str(worker.url), "--table=shop.orders", "--offset=0", "--skip")
    assert done.returncode == 0, done.stderr
    eventually(lambda: stage.run.handled() == source.count - 1)
    assert worker.sigterm() == 0


def test_a_worker_without_room_on_disk_stays_up_and_reads_on_when_it_has_some(stage: Stage) -> None:
    source = stage.source()
    source.insert("orders", records=1)
    source.flush()
    table = {"match": "*", "handlers": [judging(stage, reject={"shop.orders": [0]})]}
    worker = stage.worker(tables=[table], lanes=SMALL | {"parked": "100KiB"}).start()
    # After its first commit, which records wait for in memory.
    eventually(lambda: worker.metric("binlane_tables_halted") == 1, what="it is halted")
    source.insert("orders", records=RECORDS - 1)
    source.flush()
    eventually(lambda: worker.metric("binlane_parked_full") == 1, what="the partition is paused")
    assert worker.metric("binlane_blocked_records") < RECORDS
    done = binlane(worker, "unblock", str(worker.url), "--table=shop.orders", "--offset=0", "--skip")
    assert done.returncode == 0, done.stderr
    eventually(lambda: stage.run.handled() == source.count - 1)
    assert worker.metric("binlane_parked_full") == 0
    assert worker.sigterm() == 0
