"""Whole runs with a handler of coroutines: hundreds of batches wait at once, and every promise holds."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from integration.checkers import NeverTwoAtOnce, NothingLost, NothingTwice, NothingTwiceButWhatRan, TableOrder
from integration.conftest import MakeStage
from integration.process import eventually
from integration.row_source import NeverTwoOfAShardAtOnce, RowOrder, RowSource
from integration.stage import Stage

MANY = {"count": 200}


def awaiting(stage: Stage, **options: Any) -> dict[str, Any]:
    return {"type": "awaiting:Awaiting", "file": str(stage.run.file), **options}


def most_at_once(stage: Stage) -> int:
    events = stage.run.events()
    return max(accumulate((each["event"] == "start") - (each["event"] == "end") for each in events))


def test_many_tables_wait_at_once_each_in_its_order_through_failures(make_stage: MakeStage) -> None:
    stage = make_stage(partitions=2)
    source = stage.source()
    for _ in range(20):
        for table in range(150):
            source.insert(f"t{table}")
    source.flush()
    handler = awaiting(stage, row_sleep=0.02, fail={"shop.t3": [0], "shop.t7": [1, 19]})
    worker = stage.worker(handlers=[handler], lanes=MANY, batch={"max_records": 5}).start()
    stage.wait_rows(source.count)
    stage.wait_committed_to_the_end()
    assert worker.metric("binlane_handler_failures_total", handler="awaiting:Awaiting") >= 6
    assert worker.sigterm() == 0
    assert stage.committed() == stage.ends()
    assert most_at_once(stage) >= 100
    stage.check(NothingLost(source.rows), NothingTwice(), TableOrder(), NeverTwoAtOnce())
    assert [each["event"] for each in stage.run.events()].count("close") == max(1, stage.processes)


def test_the_rows_of_one_table_wait_at_once(stage: Stage) -> None:
    sender = stage.source()
    source = RowSource(sender, tables=1, keys=400)
    source.change(300)
    sender.insert("wide", records=1_000)
    sender.flush()
    lanes = {**MANY, "order_by": "row"}
    worker = stage.worker(handlers=[awaiting(stage, row_sleep=0.02)], lanes=lanes).start()
    stage.wait_committed_to_the_end()
    assert worker.sigterm() == 0
    assert most_at_once(stage) >= 50
    stage.check(NothingLost(source.rows | sender.rows), NeverTwoOfAShardAtOnce())
    mixed = [each for each in stage.run.events() if each.get("table") == "shop.t0"]
    assert RowOrder(source.log).broken(mixed) == []


def test_a_kill_repeats_only_what_was_not_finished(make_stage: MakeStage) -> None:
    stage = make_stage(partitions=2)
    source = stage.source()
    for _ in range(30):
        for table in range(60):
            source.insert(f"t{table}")
    source.flush()
    worker = stage.worker(handlers=[awaiting(stage, row_sleep=0.01)], lanes=MANY, batch={"max_records": 3})
    worker.start()
    stage.wait_rows(400)
    worker.kill9()
    stage.run.note_end_of(worker.identity)
    worker.start(within=60.0)
    stage.wait_committed_to_the_end()
    assert worker.sigterm() == 0
    stage.check(NothingLost(source.rows), TableOrder(), NothingTwiceButWhatRan())


def test_what_awaits_at_the_end_of_a_drain_is_cancelled_and_comes_again(make_stage: MakeStage) -> None:
    stage = make_stage()
    source = stage.source()
    source.insert("t0", records=10)
    source.insert("t1", records=10)
    source.flush()
    gate = stage.gate()
    worker = stage.worker(
        handlers=[awaiting(stage, hang={"shop.t0": 5}, hang_while=str(gate))],
        lanes=MANY,
        shutdown_timeout="1s",
        stuck_after="1s",
    ).start()
    stage.wait_rows(15)
    [stuck] = eventually(lambda: worker.logged("head_stuck"))[:1]
    assert "in _wait_or_fail" in stuck["stack_of_handler"]
    assert worker.sigterm() == 1
    assert [each["tables"] for each in worker.logged("shutdown_timeout")] == [["shop.t0"]]
    assert "shutdown_timeout of 1 s is over" in worker.logged("batch_failed")[-1]["error"]
    events = stage.run.events()
    ends = [each["ok"] for each in events if each["event"] == "end" and each["table"] == "shop.t0"]
    assert ends[-1] is False, "its own code ran to its end"
    assert [each["event"] for each in events].count("close") == max(1, stage.processes)
    gate.unlink()
    worker.start()
    stage.wait_committed_to_the_end()
    assert worker.sigterm() == 0
    stage.check(NothingLost(source.rows), TableOrder(), NothingTwiceButWhatRan())
