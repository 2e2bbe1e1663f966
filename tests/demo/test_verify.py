"""Comparing a replica with the source, and the order in which it came about."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from worker.demo.screen import Result, TableResult
from worker.demo.shop_source import Place
from worker.demo.verify import (
    Commit,
    RecordedBatch,
    compare,
    compare_columns,
    lane_work,
    order_faults,
    read_commits,
    table_work,
)

ROW: dict[str, Any] = {
    "id": 7,
    "total": Decimal("1.50"),
    "at": datetime(2026, 1, 2, tzinfo=UTC),
    "note": None,
}


def test_equal_rows_do_not_differ_whatever_their_order() -> None:
    rows = [{**ROW, "id": number} for number in range(5)]
    assert compare("orders", ["id"], rows, rows[::-1]) == []
    assert compare("log", [], rows, rows[::-1]) == []


def test_values_are_compared_as_the_handler_keeps_them() -> None:
    truth = {"id": 2**63, "took": timedelta(hours=26, minutes=5), "tags": ("a", "b"), "at": ROW["at"]}
    paris = datetime(2026, 1, 2, 1, tzinfo=ZoneInfo("Europe/Paris"))
    kept = {"id": Decimal(2**63), "took": "26:05:00", "tags": ["a", "b"], "at": paris}
    assert compare("orders", ["id"], [truth], [kept]) == []


@pytest.mark.parametrize(
    ("found", "what"),
    [
        ([], "is not in the replica"),
        ([{**ROW, "id": 8}, ROW], "is not in the source"),
        ([ROW, ROW], "1 rows have a duplicate key"),
        ([{**ROW, "note": ""}], "note is '' in the replica, None in the source"),
        ([{**ROW, "total": "1.50"}], "total is '1.50' in the replica, Decimal('1.50') in the source"),
        ([{**ROW, "total": 1.5}], "total is 1.5 in the replica, Decimal('1.50') in the source"),
        ([{key: value for key, value in ROW.items() if key != "total"}], "total is None in the replica"),
    ],
)
def test_every_difference_is_told(found: list[dict[str, Any]], what: str) -> None:
    [difference] = compare("orders", ["id"], [ROW], found)
    assert what in difference.what
    assert difference.table == "orders"


def test_rows_without_a_key_are_counted() -> None:
    assert [difference.what for difference in compare("log", [], [ROW, ROW], [ROW])] == [
        "is not in the replica"
    ]
    assert [difference.what for difference in compare("log", [], [ROW], [ROW, ROW])] == [
        "is not in the source"
    ]


def test_other_columns_or_another_order_of_them_are_told() -> None:
    assert compare_columns("orders", ["id", "note"], ["id", "note"]) == []
    for found in (["id"], ["note", "id"], ["id", "note", "old"]):
        [difference] = compare_columns("orders", ["id", "note"], found)
        assert difference.what == f"its columns are {', '.join(found)}; in the source id, note"


HISTORY = [Place("insert", offset, row) for offset in (3, 5, 6) for row in range(2)]


def batch(first: int, last: int, began: float, lane: int = 0) -> RecordedBatch:
    places = [(place.message, place.row) for place in HISTORY if first <= place.message <= last]
    return RecordedBatch("orders", lane, began, 90_000, places)


GOOD = ([batch(3, 5, 100.0, lane=1), batch(6, 6, 103.0)], [Commit((5, 1), 102.5), Commit((6, 1), 104.0)])


def test_changes_that_come_once_and_are_merged_in_order_are_faultless() -> None:
    assert order_faults("orders", HISTORY, *GOOD) == []
    assert order_faults("orders", HISTORY, GOOD[0], GOOD[1][1:]) == [], "a merge may hold several batches"


def test_a_statement_at_the_end_needs_no_merge() -> None:
    history = [*HISTORY, Place("truncate", 9, 0)]
    batches = [*GOOD[0], RecordedBatch("orders", 0, 104.5, 91_000, [(9, 0)])]
    assert order_faults("orders", history, batches, GOOD[1]) == []
    assert order_faults("orders", [*history[:-1], Place("insert", 9, 0)], batches, GOOD[1]) == [
        "1 changes were never merged, the first at offset 9"
    ]


@pytest.mark.parametrize(
    ("batches", "commits", "fault"),
    [
        ([batch(6, 6, 100.0), batch(3, 5, 103.0)], None, "the change at offset 3[0] follows 6[1]"),
        ([batch(3, 5, 100.0)], None, "2 changes were never handled, the first at offset 6"),
        ([batch(3, 5, 100.0), batch(3, 5, 101.0), batch(6, 6, 103.0)], None, "offset 3[0] follows 5[1]"),
        (None, [Commit((5, 1), 99.5), Commit((6, 1), 104.0)], "at offset 5 was merged before it was handled"),
        (None, [Commit((5, 1), 102.5)], "2 changes were never merged, the first at offset 6"),
        (None, [], "6 changes were never merged, the first at offset 3"),
        (
            None,
            [Commit((6, 1), 104.0), Commit((5, 1), 104.5)],
            "up to offset 5 follows that up to 6",
        ),
        (
            None,
            [Commit((4, 0), 102.0), Commit((6, 1), 104.0)],
            "merge ends at offset 4[0], where no change",
        ),
    ],
)
def test_every_break_of_the_order_is_told(
    batches: list[RecordedBatch] | None, commits: list[Commit] | None, fault: str
) -> None:
    faults = order_faults("orders", HISTORY, batches or GOOD[0], GOOD[1] if commits is None else commits)
    assert any(fault in told for told in faults), faults


def test_a_change_that_the_source_never_made_is_told() -> None:
    assert "2 changes are not from the source" in order_faults("orders", HISTORY[:4], *GOOD)[0]


def test_a_tables_work_lasts_until_the_merge_of_each_batch() -> None:
    work = table_work(GOOD[0], GOOD[1], "orders")
    assert (work.lanes, work.batches, work.changes, work.merges) == ((0, 1), 2, 6, 2)
    assert work.behind_seconds == pytest.approx(14.0)
    assert table_work(GOOD[0], [], "customers") == ("customers", (), 0, 0, 0, 0.0)


def test_idle_lanes_are_counted_too() -> None:
    lanes = lane_work(GOOD[0], [1.0, 2.5, 0.0])
    assert [(lane.lane, lane.batches, lane.changes, lane.busy_seconds) for lane in lanes] == [
        (0, 1, 2, 1.0), (1, 1, 4, 2.5), (2, 0, 0, 0.0),
    ]  # fmt: skip


def test_only_merges_are_read_from_a_tables_log(tmp_path: Path) -> None:
    def note(**told: Any) -> str:
        return json.dumps({"binlane": told})

    written = [
        {"commitInfo": {"timestamp": 1_500, "userMetadata": note(segment=2, marks={"cdc": {"0": [7, 1]}})}},
        {"commitInfo": {"timestamp": 2_500, "userMetadata": note(segment=0, marks={})}},
        {"commitInfo": {"timestamp": 3_500, "operation": "OPTIMIZE"}},
        {"commitInfo": {"timestamp": 4_500, "userMetadata": "somebody's own words"}},
        {"commitInfo": {"timestamp": 5_500, "userMetadata": note(segment=3, marks={"cdc": {"0": [9, 0]}})}},
    ]
    (tmp_path / "_delta_log").mkdir()
    for version, action in enumerate(written):
        lines = f'{{"protocol":{{}}}}\n{json.dumps(action)}\n'
        (tmp_path / "_delta_log" / f"{version:020d}.json").write_text(lines)
    assert read_commits(tmp_path, "cdc") == [Commit((7, 1), 1.5), Commit((9, 0), 5.5)]
    assert read_commits(tmp_path / "none", "cdc") == []


def test_a_result_is_good_only_without_any_fault() -> None:
    table = TableResult(table_work([], [], "orders"), 1, 1, [], [])
    good = Result([table], [], 0, 0.0, 0.0, [])
    assert good.good
    assert not good._replace(faults=["the worker ended with exit code 1 instead of 0"]).good
    assert not good._replace(tables=[table, table._replace(differences=["7: is not in the replica"])]).good
    assert not good._replace(tables=[table._replace(order_faults=["1 changes were never handled"])]).good
