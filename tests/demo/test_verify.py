"""Comparing a replica with the source, and the order in which it came about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from worker.demo.commits import Commit
from worker.demo.recorder import RecordedBatch
from worker.demo.report import Result, TableResult
from worker.demo.source import Place
from worker.demo.timeline import at_once, lane_work, order_faults, spans, table_work
from worker.demo.verify import compare

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
        ([ROW, ROW], "1 rows have the key of another"),
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


HISTORY = [Place("insert", offset, row) for offset in (3, 5, 6) for row in range(2)]


def batch(first: int, last: int, began: float, lane: int = 0) -> RecordedBatch:
    places = [(place.message, place.row) for place in HISTORY if first <= place.message <= last]
    return RecordedBatch("orders", lane, began, 90_000, places)


def commit(first: int, last: int, ended: float) -> Commit:
    rows = sum(first <= place.message <= last for place in HISTORY)
    return Commit(first, last, rows, ended)


GOOD = ([batch(3, 5, 100.0, lane=1), batch(6, 6, 103.0)], [commit(3, 5, 102.5), commit(6, 6, 104.0)])


def test_changes_in_order_one_batch_at_a_time_are_faultless() -> None:
    assert order_faults("orders", HISTORY, *GOOD) == []


@pytest.mark.parametrize(
    ("batches", "commits", "fault"),
    [
        ([batch(6, 6, 100.0), batch(3, 5, 103.0)], None, "the change at offset 3[0] came after 6[1]"),
        ([batch(3, 5, 100.0)], None, "2 changes never came, the first of offset 6"),
        ([batch(3, 5, 100.0), batch(3, 5, 101.0), batch(6, 6, 103.0)], None, "offset 3[0] came after 5[1]"),
        (None, [commit(3, 5, 103.5), commit(6, 6, 104.0)], "from offset 6 began before the last one ended"),
        (None, [commit(3, 5, 102.5)], "2 batches were handled, but the Delta table has 1 other appends"),
        (None, [commit(6, 6, 102.5), commit(3, 5, 104.0)], "has 2 other appends"),
    ],
)
def test_every_break_of_the_order_is_told(
    batches: list[RecordedBatch] | None, commits: list[Commit] | None, fault: str
) -> None:
    faults = order_faults("orders", HISTORY, batches or GOOD[0], commits or GOOD[1])
    assert any(fault in told for told in faults), faults


def test_a_change_that_the_source_never_made_is_told() -> None:
    assert "2 changes came that the source never made" in order_faults("orders", HISTORY[:4], *GOOD)[0]


def test_work_is_counted_from_the_beginning_to_the_commit() -> None:
    found = spans(GOOD[0], {"orders": GOOD[1]})
    lanes = lane_work(found, 3)
    assert [(lane.lane, lane.batches, lane.changes, lane.busy_seconds) for lane in lanes] == [
        (0, 1, 2, 1.0), (1, 1, 4, 2.5), (2, 0, 0, 0.0),
    ]  # fmt: skip
    work = table_work(found, "orders")
    assert (work.lanes, work.batches, work.changes, work.busy_seconds) == ((0, 1), 2, 6, 3.5)
    assert work.behind_seconds == pytest.approx(14.0)


def test_batches_at_once_are_the_most_and_the_mean_while_any_ran() -> None:
    work = [("a", 0.0, 4.0), ("b", 1.0, 3.0), ("c", 2.0, 3.0), ("d", 10.0, 11.0)]
    batches = [RecordedBatch(table, 0, began, 0, [(1, 0)]) for table, began, _ in work]
    commits = {table: [Commit(1, 1, 1, ended)] for table, _, ended in work}
    most, mean = at_once(spans(batches, commits))
    assert most == 3
    assert mean == pytest.approx(8 / 5)


def test_a_result_is_good_only_without_any_fault() -> None:
    table = TableResult(table_work([], "orders"), 1, 1, [], [])
    good = Result([table], [], 0, 0.0, 0.0, [])
    assert good.good
    assert not good._replace(faults=["the worker ended with exit code 1 instead of 0"]).good
    assert not good._replace(tables=[table, table._replace(differences=["7: is not in the replica"])]).good
    assert not good._replace(tables=[table._replace(order_faults=["1 changes never came"])]).good
