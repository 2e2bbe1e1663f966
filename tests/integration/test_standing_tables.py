"""A table that stands still stops no other table: its records are parked, and follow in their order."""

from __future__ import annotations

from typing import Any

import pytest
from integration.checkers import NothingLost, NothingTwice, TableOrder
from integration.conftest import MakeStage
from integration.letters import judging
from integration.process import eventually

NEVER = {"max_attempts": None, "initial_delay": "100ms", "max_delay": "1s"}
TABLES, RECORDS = 8, 4_000
ONE_OF_TEN = 10


@pytest.mark.parametrize("halts", [False, True])
@pytest.mark.parametrize("order_by", ["table", "row"])
def test_all_other_tables_are_handled_and_then_it_continues_in_order(
    make_stage: MakeStage, halts: bool, order_by: str
) -> None:
    stage = make_stage()
    source, gate = stage.source(), stage.gate()
    for _ in range(RECORDS // ONE_OF_TEN):
        source.insert("bad", records=ONE_OF_TEN)
        for table in range(TABLES - 1):
            source.insert(f"t{table}", records=ONE_OF_TEN)
    source.flush()
    good = sum(len(rows) for table, rows in source.rows.items() if table != "shop.bad")
    handler = judging(stage, reject={"shop.bad": "all"}, reject_while=str(gate), how="error")
    table: dict[str, Any] = {"match": "*", "handlers": [handler]}
    if not halts:
        table["retry"] = NEVER
    else:
        table["retry"] = {"max_attempts": 1}
    worker = stage.worker(
        tables=[table], lanes={"count": 4, "max_records": 1_000, "order_by": order_by}
    ).start()
    eventually(lambda: stage.run.handled() == good, within=60, what="all other tables are handled")
    assert worker.status()["state"] == ("halted" if halts else "running")
    assert worker.metric("binlane_tables_blocked") == 1
    assert worker.metric("binlane_tables_halted") == int(halts)
    # A batch that is just tried again is in memory, beside what is not parked yet.
    parked = RECORDS - 1_000
    eventually(lambda: worker.metric("binlane_parked_records") >= parked, what="its records are parked")
    assert worker.metric("binlane_blocked_records") == RECORDS
    assert worker.metric("binlane_parked_bytes") > parked * 100
    state = worker.folder / "state"
    assert len(list(state.glob("parked-*"))) > 0
    gate.unlink()
    if halts:
        worker.kill9()
        worker.start()
    eventually(lambda: stage.run.handled() == source.count, within=60, what="and then this one")
    order = [TableOrder()] if order_by == "table" else []
    eventually(lambda: worker.metric("binlane_parked_bytes") == 0, what="its files are deleted")
    assert worker.metric("binlane_parked_records") == worker.metric("binlane_parked_seconds") == 0
    stage.check(NothingLost(source.rows), NothingTwice(), *order)
    assert worker.sigterm() == 0
    assert list(state.glob("parked-*")) == []


@pytest.mark.soak
@pytest.mark.parametrize("order_by", ["table", "row"])
def test_a_bad_table_of_eight_costs_the_others_nothing_in_run_after_run(
    make_stage: MakeStage, order_by: str
) -> None:
    """With default bounds. Each run ends by a kill."""
    stage = make_stage()
    source, gate = stage.source(), stage.gate()
    records = 200_000
    for _ in range(records // 100):
        source.insert("bad", records=10)
        for table in range(TABLES - 1):
            source.insert(f"t{table}", records=90 // 7 + (table < 90 % 7))
    source.flush()
    bad = records // 10
    handler = judging(stage, reject={"shop.bad": "all"}, reject_while=str(gate))
    worker = stage.worker(tables=[{"match": "*", "handlers": [handler]}], lanes={"order_by": order_by})
    for _ in range(3):
        worker.start()
        eventually(lambda: stage.run.handled() == records - bad, within=120, what="all other tables")
        eventually(lambda: worker.metric("binlane_blocked_records") == bad, what="all is read")
        assert stage.run.handled() == records - bad, "nothing is repeated"
        worker.kill9()
    gate.unlink()
    worker.start()
    eventually(lambda: stage.run.handled() == records, within=120, what="and the table itself")
    stage.check(NothingLost(source.rows), NothingTwice())
    assert worker.sigterm() == 0


@pytest.mark.soak
@pytest.mark.parametrize("order_by", ["table", "row"])
def test_tables_that_halt_one_after_the_other_lose_and_repeat_nothing(
    make_stage: MakeStage, order_by: str
) -> None:
    stage = make_stage()
    source, gate = stage.source(), stage.gate()
    each = 5_000
    for _ in range(each // 10):
        for table in range(TABLES):
            source.insert(f"t{table}", records=10)
    source.flush()
    reject = {f"shop.t{table}": [300 + 600 * table] for table in range(TABLES)}
    handler = judging(stage, reject=reject, reject_while=str(gate))
    worker = stage.worker(
        tables=[{"match": "*", "handlers": [handler]}],
        lanes={"order_by": order_by, "count": 4, "max_records": 1_000},
    )
    for halted in range(1, TABLES + 1):
        worker.start()
        eventually(lambda n=halted: worker.metric("binlane_tables_halted") >= n, within=60)  # type: ignore[misc]
        worker.kill9()
    worker.start()
    eventually(lambda: worker.metric("binlane_tables_halted") == TABLES, within=60)
    eventually(
        lambda: worker.metric("binlane_unread_records") == 0 and worker.metric("binlane_unfinished_records"),
        within=60,
    )
    worker.kill9()
    gate.unlink()
    worker.start()
    eventually(lambda: stage.run.handled() == source.count, within=120)
    order = [TableOrder()] if order_by == "table" else []
    stage.check(NothingLost(source.rows), *order)
    assert worker.sigterm() == 0
