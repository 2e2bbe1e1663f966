"""Comparing a replica with the source, and the order in which it came about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from worker.demo.screen import Result, TableResult, compare, compare_columns

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


def test_a_result_is_good_only_without_any_fault() -> None:
    table = TableResult("orders", 1, 1, 1, [])
    good = Result([table], [])
    assert good.good
    assert not good._replace(faults=["the worker ended with exit code 1 instead of 0"]).good
    assert not good._replace(tables=[table, table._replace(differences=["7: is not in the replica"])]).good
