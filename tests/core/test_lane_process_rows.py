"""Tables in row order whose shards child processes handle: the worker decodes and distributes their rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from building import chunk, delivery
from process_stage import ProcessStage
from processing import NOW
from row_building import key_change, rows, statement

from offsets.types import Checkpoint
from worker.formats.interface import Record
from worker.units.table import Table
from worker.units.unit import Shards, Unit

Make = Callable[..., ProcessStage]
Entry = Callable[..., dict[str, Any]]


def row_table(stage: ProcessStage, name: str = "orders") -> Unit:
    unit = stage.unit(name)
    unit.table = Table("shop", name, unit.table.rule, unit.table.handlers, by_row=True)
    unit.shards = Shards()
    return unit


def handled(stage: ProcessStage, unit: Unit, *records: Record) -> list[dict[str, Any]]:
    """Return its calls that succeeded."""
    stage.lanes.offer(delivery((unit, chunk(stage.partition, records))))
    stage.start()
    stage.wait(lambda: stage.checkpoint() == Checkpoint(records[-1].offset() + 1))
    return stage.events(table=f"shop.{unit.table.name}")


def test_the_rows_of_one_table_are_handled_in_all_processes(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing()], "batch": {"max_records": 3}}, lanes=4)
    calls = handled(stage, row_table(stage), *(rows(offset, offset % 20) for offset in range(200)))
    assert {call["pid"] for call in calls} == set(stage.pids())
    assert os.getpid() not in stage.pids()
    assert sorted(number for call in calls for number in call["ids"]) == sorted([*range(20)] * 10)
    assert {tuple(call["types"].items()) for call in calls} == {(("id", "bigint"), ("at", "bigint"))}


def test_a_row_that_ends_its_process_is_passed_over_alone(make: Make, writing: Entry) -> None:
    rule = {"retry": NOW | {"max_attempts": 2}, "on_failure": "skip"}
    stage = make({"handlers": [writing(does={"7": "die"})], **rule}, lanes=4)
    calls = handled(stage, row_table(stage), rows(0, *range(10)), *(rows(n, n + 9) for n in range(1, 10)))
    found = sorted(number for call in calls for number in call["ids"])
    assert found == [number for number in range(19) if number != 7]
    assert stage.counted('binlane_records_skipped_total{reason="failed"} 1.0')


@pytest.mark.parametrize("fails", [False, True])
def test_after_a_statement_the_other_process_is_replaced(
    make: Make, writing: Entry, tmp_path: Path, fails: bool
) -> None:
    rule = {"retry": NOW | {"max_attempts": 2}, "on_failure": "skip"}
    stage = make({"handlers": [writing("Refusing" if fails else "Writing")], **rule}, lanes=4)
    unit, before = row_table(stage), stage.pids()
    around = [rows(n, n) for n in range(8)], [rows(n, n) for n in range(9, 17)]
    calls = handled(stage, unit, *around[0], statement(8, "ALTER TABLE orders ADD x int"), *around[1])
    stage.wait(lambda: len(stage.pids()) == 2)
    assert len(set(before) & set(stage.pids())) == 1
    ids = [call["ids"] for call in calls]
    assert sorted(number for call in ids for number in call if number is not None) == [
        *range(8),
        *range(9, 17),
    ]
    late = {call["pid"] for call in calls if call["ids"] != [None] and min(call["ids"]) > 8}
    assert late <= set(stage.pids()), "none of them is handled by what may know an older table"


def test_a_key_that_changes_waits_for_both_rows(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing()]}, lanes=4)
    before = stage.pids()
    calls = handled(stage, row_table(stage), rows(0, 1), rows(1, 2), key_change(2, 1, 3), rows(3, 3))
    assert [call["ids"] for call in calls][-2:] == [[None, 3], [3]]
    assert stage.pids() == before


def test_a_reload_reaches_the_processes_without_a_decoding_there(make: Make, writing: Entry) -> None:
    handler = writing(does={str(number): "ask which tables it handles" for number in range(20)})
    stage = make({"handlers": [handler]}, processes=1, lanes=1)
    orders = row_table(stage)
    handled(stage, orders, rows(0, 0))
    rules = {"match": "shop.items", "handlers": [{"type": "log"}]}, {"handlers": [handler]}
    stage.handlers.adopt(stage.handlers.plan(stage.configured(*rules)))
    stage.lanes.offer(delivery((orders, chunk(stage.partition, [rows(1, 1)]))))
    stage.wait(lambda: stage.checkpoint() == Checkpoint(2))
    assert [line["items"] for line in stage.events("handles")] == [True, False]
