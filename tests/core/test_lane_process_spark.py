"""Spark's handler stays in the worker, and child processes decode and build the rows of its segments."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from building import chunk, delivery, record
from process_stage import ProcessStage
from processing import NOW
from spark_sessions import SHARED, SparkKeeper
from structlog.testing import capture_logs

import binlane
from offsets.types import Checkpoint
from worker.processes.changes import ChangesElsewhere
from worker.processes.processes import Processes
from worker.running.open_handlers import Making
from worker.units.unit import Unit, UnitState

Make = Callable[..., ProcessStage]
Entry = Callable[..., dict[str, Any]]

TYPES = {"id": "int", "name": "varchar(20)", "price": "decimal(8,2)"}


def canal(op: str, *rows: dict[str, str | None], old: dict[str, str] | None = None, sql: str = "") -> bytes:
    types = {name: TYPES.get(name, "bigint") for row in rows for name in row}
    message = {
        "database": "shop",
        "table": "orders",
        "pkNames": ["id"],
        "isDdl": bool(sql),
        "type": op,
        "es": 1_763_000_000_000,
        "ts": 1_763_000_000_003,
        "sql": sql,
        "mysqlType": types,
        "sqlType": dict.fromkeys(types, 12),
        "data": list(rows) or None,
        "old": [old] if old else None,
    }
    return json.dumps(message).encode()


def row(key: int, name: str | None = "a", **more: str) -> dict[str, str | None]:
    return {"id": str(key), "name": name, "price": f"{key}.50", **more}


CHANGES = [
    canal("INSERT", row(1), row(2), row(3)),
    canal("UPDATE", row(1, "b"), old={"name": "a"}),
    canal("DELETE", row(2)),
    canal("UPDATE", row(4), old={"id": "3"}),
    canal("INSERT", row(5, None)),
]
ADDED = [
    canal("ALTER", sql="ALTER TABLE `orders` ADD COLUMN `n` BIGINT NOT NULL DEFAULT 7"),
    canal("INSERT", row(6, n="8"), row(7, n=str(2**40))),
]


def spark(mode: str, **more: Any) -> dict[str, Any]:
    return {"type": "spark", "mode": mode, "merge": {"max_age": "1h", "at_close": "60s"}, **more}


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The table of each call that found rows in a child process. `die`: the next one ends its process."""
    calls: list[str] = []
    compute = Processes._compute

    def noted(self: Processes, changes: ChangesElsewhere, function: bytes) -> Any:
        label = changes.reading.table.label
        if "die" in calls:
            calls.remove("die")
            os.kill(self._slot(label).process.pid, signal.SIGKILL)
        calls.append(label)
        return compute(self, changes, function)

    monkeypatch.setattr(Processes, "_compute", noted)
    return calls


@pytest.fixture
def stage_in(make: Make, tmp_path: Path, spark_keeper: SparkKeeper) -> Make:
    spark_keeper.get()

    def stage(lake: str, *rules: dict[str, Any], **more: Any) -> ProcessStage:
        return make(*rules, spark={**SHARED, "warehouse": str(tmp_path / lake)}, **more)

    return stage


def give(stage: ProcessStage, orders: Unit, *values: bytes, first: int = 0) -> None:
    """Handle these records. Each statement comes alone."""
    for alone, some in groupby(enumerate(values, first), lambda each: b'"isDdl": true' in each[1]):
        records = [record(offset, value=value) for offset, value in some]
        assert stage.lanes.offer(delivery((orders, chunk(stage.partition, records, alone=alone))))
    end = first + len(values)
    stage.wait(lambda: stage.checkpoint() == Checkpoint(end) or orders.state is UnitState.HALTED)


def rows(folder: Path) -> list[dict[str, Any]]:
    found = binlane.read(str(folder / "shop" / "orders")).to_pylist()
    return sorted(found, key=lambda one: [str(value) for value in one.values()])


@pytest.mark.parametrize("mode", ["replica", pytest.param("history", marks=pytest.mark.soak), "changelog"])
def test_a_table_has_the_same_rows_with_child_processes(
    stage_in: Make, tmp_path: Path, computed: list[str], mode: str
) -> None:
    found = {}
    for processes in (0, 2):
        stage = stage_in(folder := f"lake{processes}", {"handlers": [spark(mode)]}, processes=processes)
        orders = stage.unit("orders")
        stage.start()
        give(stage, orders, *CHANGES)
        give(stage, orders, *ADDED, first=len(CHANGES))
        stage.close()
        assert orders.state is UnitState.IDLE
        assert set(computed) == ({"shop.orders"} if processes else set())
        found[processes] = rows(tmp_path / folder)
    assert found[0] == found[2]
    assert len(found[2]) == {"replica": 5, "history": 8, "changelog": 11}[mode]


def test_changes_that_a_table_has_are_passed_over(stage_in: Make, tmp_path: Path) -> None:
    for _ in range(2):
        stage = stage_in("lake", {"handlers": [spark("changelog")]})
        stage.start()
        give(stage, stage.unit("orders"), *CHANGES)
        stage.stop()
    assert len(rows(tmp_path / "lake")) == 8
    assert stage.counted('binlane_handler_passed_over_total{handler="spark"} 8.0')


def test_a_row_that_is_rejected_is_skipped_alone(stage_in: Make, tmp_path: Path, computed: list[str]) -> None:
    bad = canal("INSERT", row(6), row(7) | {"id": None}, row(8))
    rule = {"handlers": [spark("replica")], "on_failure": "skip", "retry": NOW}
    stage = stage_in("lake", rule)
    orders = stage.unit("orders")
    stage.start()
    with capture_logs() as logs:
        give(stage, orders, *CHANGES, bad)
    stage.stop()
    assert [one["id"] for one in rows(tmp_path / "lake")] == [1, 4, 5, 6, 8]
    [skipped] = [log for log in logs if log["event"] == "change_skipped"]
    assert skipped["position"] == "cdc.shop[0] offset 5 row 1"
    assert "the key column 'id' is NULL at cdc.shop[0] offset 5" in skipped["error"]
    assert computed


def test_the_end_of_the_process_is_a_failed_attempt(
    stage_in: Make, tmp_path: Path, computed: list[str]
) -> None:
    stage = stage_in("lake", {"handlers": [spark("changelog")], "retry": NOW}, processes=1)
    orders = stage.unit("orders")
    stage.start()
    give(stage, orders, *CHANGES[:1])
    computed.append("die")
    with capture_logs() as logs:
        give(stage, orders, *CHANGES[1:], first=1)
    stage.stop()
    assert len(rows(tmp_path / "lake")) == 8
    [ended] = [log for log in logs if log["event"] == "lane_process_ended"]
    assert (ended["how"], ended["tables"]) == ("SIGKILL", ["shop.orders"])
    [failed] = [log for log in logs if log["event"] == "batch_failed"]
    assert failed["error"].startswith("ProcessDied: lane process 0 (pid ")


def test_a_handler_of_a_child_process_may_be_beside_it(
    stage_in: Make, writing: Entry, tmp_path: Path, computed: list[str]
) -> None:
    stage = stage_in("lake", {"handlers": [spark("changelog"), writing()]})
    stage.start()
    give(stage, stage.unit("orders"), *CHANGES)
    stage.stop()
    assert len(rows(tmp_path / "lake")) == 8
    assert computed
    assert {line["pid"] for line in stage.events()}.issubset(stage.pids())


@pytest.mark.parametrize(
    ("more", "lanes"),
    [({"transform": "process_handlers:same"}, {}), ({}, {"order_by": "row"})],
)
def test_rules_that_need_the_rows_here_keep_them(
    stage_in: Make, more: dict[str, str], lanes: dict[str, str]
) -> None:
    stage = stage_in("lake", {"handlers": [spark("changelog")]})
    after = stage.configured(
        {"handlers": [spark("changelog")], **more},
        lanes={"processes": 2, "count": 2, **lanes},
        spark={**SHARED, "warehouse": "lake"},
    )
    [rule] = after.tables
    assert Making(stage.configuration, stage.configuration.tables[0], stage.processes).elsewhere
    assert Making(after, rule, stage.processes).elsewhere is None
