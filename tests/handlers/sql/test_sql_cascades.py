"""A row that other rows refer to keeps them when it gets another key, and loses them when it is deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sql_lab import SqlLab, orders

MakeLab = Callable[[str], SqlLab]
TYPES = {"id": "int", "note": "text"}
OLD, NEW = {"id": 1, "note": "a"}, {"id": 5, "note": "b"}


@pytest.fixture(params=["postgres", "mariadb"])
def lab(make_sql: MakeLab, request: pytest.FixtureRequest) -> SqlLab:
    """Not SQLite, whose sessions look at no foreign key, nor DuckDB, whose foreign keys change no rows."""
    lab = make_sql(request.param)
    lab.make("shop.orders", "id int PRIMARY KEY, note varchar(9)")
    return lab


def refer(lab: SqlLab, actions: str, table: str = "shop.lines") -> None:
    """A table with a row that refers to order 1."""
    orders_ = lab.ref("shop.orders")
    lab.make(table, f"id int PRIMARY KEY, o int, FOREIGN KEY (o) REFERENCES {orders_} (id) {actions}")
    lab.run(f"INSERT INTO {lab.ref(table)} VALUES (7, 1)")


def move(whole: bool = True) -> list[dict[str, Any]]:
    gone = {"before": OLD, "after": None, "offset": 1, "moves_key": True}
    after, lacks = (NEW, frozenset()) if whole else ({"id": 5}, frozenset({"note"}))
    made = {"before": None, "after": after, "offset": 1, "index": 1, "moves_key": True, "lacks": lacks}
    return [gone, made]


@pytest.mark.parametrize("actions", ["ON DELETE CASCADE ON UPDATE CASCADE", "ON UPDATE CASCADE"])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("key", ["id", None])
def test_what_refers_to_a_row_follows_it_to_its_new_key(
    lab: SqlLab, actions: str, whole: bool, key: str | None
) -> None:
    after = NEW if whole else {"id": 5}
    moved = [{"before": OLD, "after": after, "offset": 1}] if key is None else move(whole)
    with lab.handler() as handler:
        handler.handle(orders(OLD, key=key, types=TYPES))
        refer(lab, actions)
        handler.handle(orders(*moved, key=key, types=TYPES))
    assert lab.rows() == [NEW if whole else {"id": 5, "note": "a"}]
    assert lab.rows("shop.lines") == [{"id": 7, "o": 5}]


def test_a_row_that_is_deleted_and_made_again_takes_along_what_refers_to_it(lab: SqlLab) -> None:
    """The source's own cascade deletes there what no record tells of."""
    with lab.handler() as handler:
        handler.handle(orders(OLD, types=TYPES))
        refer(lab, "ON DELETE CASCADE")
        refer(lab, "ON DELETE SET NULL", table="shop.notes")
        handler.handle(orders({"before": OLD, "after": None}, OLD, types=TYPES, offset=1))
    assert lab.rows() == [OLD]
    assert lab.rows("shop.lines") == []
    assert lab.rows("shop.notes") == [{"id": 7, "o": None}]
