"""Order by row: rows of a table side by side, each in order, statements between all before and all after."""

from __future__ import annotations

from typing import Any

import pytest
from integration.checkers import Guarantee, NothingLost, NothingTwice
from integration.conftest import MakeStage
from integration.process import eventually
from integration.row_source import Barriers, NeverTwoOfAShardAtOnce, RowOrder, RowSource
from integration.stage import Stage

ROW = {"count": 8, "order_by": "row"}
STATIC = {"group.instance.id": "the-only-one"}


def guarantees(source: RowSource) -> list[Guarantee]:
    return [
        NothingLost(source.rows),
        RowOrder(source.log),
        Barriers(source.log),
        NeverTwoOfAShardAtOnce(),
    ]


def test_rows_of_one_table_run_side_by_side_each_in_its_order(stage: Stage) -> None:
    sender = stage.source()
    source = RowSource(sender, tables=1, keys=200)
    source.change(2_000)
    sender.flush()

    worker = stage.worker(handlers=[stage.recording(row_sleep=0.002)], lanes=ROW).start()
    stage.wait_rows(source.count)
    stage.wait_committed_to_the_end()
    assert worker.table("shop.t0")["finished_records"] == 2_000
    assert worker.sigterm() == 0

    stage.check(*guarantees(source))
    assert len(stage.run.rows()) == sum(max(1, len(sent.ids)) for sent in source.log["shop.t0"])
    inside = most = 0
    for event in stage.run.events():
        inside += {"start": 1, "end": -1}.get(event["event"], 0)
        most = max(most, inside)
    assert most == 8, "all lanes work on one table"


# Tables in order under kills: test_restart.py has eight of them.
@pytest.mark.parametrize("order_by", ["row", pytest.param("table", marks=pytest.mark.soak)])
def test_kills_under_load_lose_nothing_and_keep_the_order_of_rows_and_statements(
    make_stage: MakeStage, order_by: str
) -> None:
    stage = make_stage(partitions=2)
    sender = stage.source()
    source = RowSource(sender, tables=3, keys=60)
    lanes = {"count": 8, "order_by": order_by}
    worker = stage.worker(handlers=[stage.recording(row_sleep=0.001)], properties=STATIC, lanes=lanes)
    for _ in range(5):
        handled = stage.run.handled()
        source.change(800)  # each worker has more to do than it is let live for, however fast it is
        sender.flush()
        worker.start()
        stage.wait_rows(handled + 700)
        worker.kill9()
    worker.start()
    stage.wait_rows(source.count, within=90)
    stage.wait_committed_to_the_end()

    assert worker.sigterm() == 0
    stage.check(*guarantees(source))


def test_a_row_that_fails_for_good_blocks_its_rows_alone_and_the_table_shows_it(stage: Stage) -> None:
    sender = stage.source()
    source = RowSource(sender, tables=1, keys=40)
    for number in range(40):
        source.write("t0", [number])
    for number in range(40):
        source.write("t0", [number])
    sender.flush()
    failing = stage.gate()
    handler = stage.recording(fail={"shop.t0": [3]}, fail_while=str(failing), partial=True)
    worker = stage.worker(handlers=[handler], lanes=ROW).start()
    eventually(lambda: worker.table("shop.t0").get("state") == "blocked")
    eventually(lambda: len(stage.run.rows()) >= 70)
    ids = {row["id"] for row in stage.run.rows()}
    assert 3 not in ids
    assert len(ids) > 30
    assert [table["table"] for table in worker.status()["tables"]] == ["shop.t0"], "one line for all shards"
    assert worker.status()["state"] == "halted"
    assert worker.sigterm() == 1

    failing.unlink()
    worker.start()
    stage.wait_rows(source.count)
    stage.wait_committed_to_the_end()
    assert worker.sigterm() == 0
    stage.check(*guarantees(source))


def test_a_rename_goes_between_all_before_and_all_after_of_each_table_it_names(stage: Stage) -> None:
    sender = stage.source()
    source = RowSource(sender, tables=2, keys=30)
    for _ in range(4):
        for number in range(60):
            source.write(f"t{number % 2}", [number % 30])
        source.state("t0", "RENAME")
    sender.flush()
    slow: dict[str, Any] = {"shop.t1": 0.003}
    worker = stage.worker(handlers=[stage.recording(slow=slow)], lanes=ROW).start()
    stage.wait_rows(source.count)
    stage.wait_committed_to_the_end()
    assert worker.sigterm() == 0
    stage.check(*guarantees(source), NothingTwice())
    seen: list[int] = []
    count = 0
    for row in stage.run.rows():
        if row["seq"] is not None and row["table"] == "shop.t1":
            count += 1
        if row["op"] == "ddl":
            seen.append(count)
    assert seen == [30, 60, 90, 120], "so many rows of t1 are before each statement of t0"


def test_rows_keep_their_order_while_partitions_move_between_workers(make_stage: MakeStage) -> None:
    stage = make_stage(partitions=4)
    sender = stage.source()
    source = RowSource(sender, tables=6, keys=40)
    source.change(3_000)
    sender.flush()
    handlers = [stage.recording(row_sleep=0.002)]
    first = stage.worker("first", handlers=handlers, lanes=ROW).start()
    stage.wait_rows(800)
    second = stage.worker("second", handlers=handlers, lanes=ROW).start()
    eventually(lambda: all(len(worker.status()["partitions"]) == 2 for worker in (first, second)))
    handled = stage.run.handled()
    source.change(2_000)
    sender.flush()
    stage.wait_rows(handled + 1_000)
    assert first.sigterm() == 0
    stage.wait_rows(source.count, within=90)
    stage.wait_committed_to_the_end()

    assert second.sigterm() == 0
    stage.check(*guarantees(source))
