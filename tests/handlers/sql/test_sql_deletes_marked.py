"""Rows that stay when the source deletes them: what becomes of them by DDL, and of their column."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import pytest
from sql_lab import SqlLab, orders, ruled

from handlers import Batch, Rejected
from handlers.testing import make_batch

TYPES = {"id": "int", "a": "int"}
TIME_MS = 1_700_000_000_000
GONE = {"before": {"id": 1, "a": 5}, "after": None, "source_time_ms": TIME_MS}


def statement(sql: str, offset: int) -> Batch:
    return make_batch("shop.orders", [{"sql": sql, "source_time_ms": TIME_MS}], offset=offset)


def times(sql: SqlLab) -> list[str | None]:
    """Of each row when it was deleted, in the order of their ids."""
    found = sorted(sql.rows(columns="id, deleted_at"), key=lambda row: int(row["id"]))
    return [None if row["deleted_at"] is None else str(row["deleted_at"])[:19] for row in found]


marked = partial(ruled, deletes="mark")


@pytest.mark.parametrize("rule", ["add", "refuse"])
def test_a_table_that_a_statement_makes_has_the_column_of_the_mark(
    sql: SqlLab, rule: Literal["add", "refuse"]
) -> None:
    with sql.handler(new_columns=rule) as handler:
        handler.handle(marked(statement("CREATE TABLE orders (id int PRIMARY KEY, a int)", 0)))
        handler.handle(marked(orders({"id": 1, "a": 5}, GONE, types=TYPES, offset=1)))
    assert times(sql) == ["2023-11-14 22:13:20"]


def test_without_leave_to_make_the_mark_all_is_rejected(sql: SqlLab) -> None:
    sql.make("shop.orders", "id int PRIMARY KEY, a int")
    with (
        sql.handler(create=False) as handler,
        pytest.raises(Rejected, match="no column deleted_at; add it, or set new_columns"),
    ):
        handler.handle(marked(orders({"id": 1, "a": 5}, types=TYPES)))


@pytest.mark.parametrize("has_column", [True, False])
@pytest.mark.parametrize("is_statement", [True, False])
def test_truncate_marks_all_rows_that_are_not_marked(
    sql: SqlLab, has_column: bool, is_statement: bool
) -> None:
    rows = [{"id": 1, "a": 5}, {"id": 2, "a": 6}]
    truncate = {"op": "truncate", "sql": None, "source_time_ms": TIME_MS}
    emptied = (
        statement("TRUNCATE Orders", 3) if is_statement else make_batch("shop.orders", [truncate], offset=3)
    )
    with sql.handler() as handler:
        handler.handle(ruled(orders(*rows, types=TYPES, offset=0), deletes="mark" if has_column else "apply"))
        if has_column:
            handler.handle(marked(orders({**GONE, "source_time_ms": TIME_MS - 1000}, types=TYPES, offset=2)))
        for _ in range(2):  # as after a crash
            handler.handle(marked(emptied))
        first = "2023-11-14 22:13:19" if has_column else "2023-11-14 22:13:20"
        assert times(sql) == [first, "2023-11-14 22:13:20"]
        handler.handle(marked(orders(rows[1], types=TYPES, offset=4)))
    assert times(sql) == [first, None]


def test_truncate_is_ignored_where_deletes_are(sql: SqlLab) -> None:
    row: dict[str, Any] = {"id": 1, "a": 5}
    with sql.handler() as handler:
        handler.handle(orders(row, types=TYPES, offset=0))
        for emptied in (
            make_batch("shop.orders", [{"op": "truncate", "sql": None}]),
            statement("TRUNCATE orders", 2),
        ):
            assert not ruled(emptied, deletes="ignore").changes
    assert sql.rows() == [row]


@pytest.mark.parametrize("mode", ["mark", "ignore"])
def test_a_row_that_gets_another_key_has_what_its_change_does_not_carry_from_the_row_that_stays(
    sql: SqlLab, mode: Literal["mark", "ignore"]
) -> None:
    """PostgreSQL's large values (TOAST)."""
    types = {**TYPES, "b": "text", "u": "int"}
    columns = "id int PRIMARY KEY, a int NOT NULL, b varchar(9) NOT NULL, u int UNIQUE"
    sql.make("shop.orders", columns + (", deleted_at timestamp NULL" if mode == "mark" else ""))
    rows = [{"id": 1, "a": 5, "b": "big", "u": 7}, {"id": 3, "a": 0, "b": "other", "u": 8}]
    gone = {**GONE, "moves_key": True, "before_is_whole": False}
    made = {"before": None, "moves_key": True, "lacks": frozenset({"b"}), "index": 1}
    moved = [
        {**gone, "before": {"id": 1}, "offset": 2},
        {**made, "after": {"id": 2, "a": 6, "u": 9}, "offset": 2},
        {**gone, "before": {"id": 2}, "offset": 3},
        {**made, "after": {"id": 3, "a": 6, "u": None}, "offset": 3},
    ]
    with sql.handler() as handler:
        handler.handle(ruled(orders(*rows, types=types), deletes=mode))
        handler.handle(ruled(orders(*moved, types=types), deletes=mode))
    found = [(row["id"], row["a"], row["b"], row["u"]) for row in sql.rows(columns="id, a, b, u")]
    assert found == [(1, 5, "big", 7), (2, 6, "big", 9), (3, 6, "big", None)]
    if mode == "mark":
        assert [time is not None for time in times(sql)] == [True, True, False]
