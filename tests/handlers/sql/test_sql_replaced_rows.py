"""What a new row leaves of the one that has its key, and what unrelated changes of one record leave."""

from __future__ import annotations

from typing import Any

import pytest
from sql_lab import SqlLab, orders

from handlers import Rejected

TYPES = {"id": "int", "note": "varchar(20)", "coupon": "varchar(20)"}
TABLE = "id int PRIMARY KEY, note varchar(20), coupon varchar(20) DEFAULT 'none', handled_by varchar(20)"


@pytest.mark.parametrize("op", ["insert", "snapshot"])
@pytest.mark.parametrize("again", [1, 2])
def test_a_new_row_sets_what_it_does_not_have_to_its_default(sql: SqlLab, op: str, again: int) -> None:
    sql.make("shop.orders", TABLE)
    first = [{"id": at, "note": "a", "coupon": "SUMMER"} for at in range(1, 3)]
    with sql.handler() as handler:
        handler.handle(orders(*first, types=TYPES))
        sql.run(f"UPDATE {sql.ref('shop.orders')} SET handled_by = 'alice'")
        rows = [{"op": op, "before": None, "after": {"id": at, "note": "b"}} for at in range(1, again + 1)]
        handler.handle(orders(*rows, types=TYPES, offset=5))
    kept = {"note": "b", "coupon": "none", "handled_by": "alice"}  # of the target's own
    assert sql.rows()[:again] == [{"id": at, **kept} for at in range(1, again + 1)]


def test_without_types_any_column_may_be_the_sources(sql: SqlLab) -> None:
    sql.make("shop.orders", TABLE)
    with sql.handler() as handler:
        handler.handle(orders({"id": 1, "note": "a", "coupon": "SUMMER"}, {"id": 2, "coupon": "X"}))
        handler.handle(orders({"id": 1, "note": "b"}, {"id": 2, "note": "c", "coupon": "Y"}, offset=5))
    rows = [(row["id"], row["note"], row["coupon"]) for row in sql.rows()]
    assert rows == [(1, "b", "none"), (2, "c", "Y")]


def test_an_update_sets_no_more_than_it_has(sql: SqlLab) -> None:
    with sql.handler() as handler:
        handler.handle(orders({"id": 1, "note": "a", "coupon": "SUMMER"}, types=TYPES))
        handler.handle(orders({"before": {"id": 1}, "after": {"note": "b"}}, types=TYPES, offset=5))
    assert sql.rows() == [{"id": 1, "note": "b", "coupon": "SUMMER"}]


def test_a_delete_and_an_insert_of_one_record_are_two_changes_unless_the_format_says_so(sql: SqlLab) -> None:
    """A packet of Canal holds many statements."""
    sql.make("shop.orders", TABLE)
    gone: dict[str, Any] = {"before": {"id": 1, "note": "a", "coupon": "b"}, "after": None, "offset": 5}
    made = {"before": None, "after": {"id": 2, "note": "b", "coupon": "b"}, "offset": 5, "index": 132}
    with sql.handler() as handler:
        handler.handle(orders({"id": 1, "note": "a", "coupon": "b"}, types=TYPES))
        sql.run(f"UPDATE {sql.ref('shop.orders')} SET handled_by = 'alice'")
        handler.handle(orders(gone, made, types=TYPES))
    assert sql.rows() == [{"id": 2, "note": "b", "coupon": "b", "handled_by": None}]


def test_a_row_under_a_new_key_whose_old_half_is_in_another_record_is_rejected(sql: SqlLab) -> None:
    gone: dict[str, Any] = {"before": {"id": 1}, "after": None, "offset": 5, "moves_key": True}
    made = {"before": None, "after": {"id": 2, "coupon": "b"}, "offset": 6, "moves_key": True}
    told = {**made, "lacks": frozenset({"note"})}
    with sql.handler() as handler:
        handler.handle(orders({"id": 1, "note": "a", "coupon": "b"}, types=TYPES))
        with pytest.raises(
            Rejected, match=r"its key changed, and the source does not send .* of note"
        ) as found:
            handler.handle(orders(gone, told, types=TYPES))
        assert found.value.at == 1
        handler.handle(orders(gone, made, types=TYPES))
    assert sql.rows() == [{"id": 2, "note": None, "coupon": "b"}]


def test_a_moved_row_whose_old_key_is_to_stay_makes_none(sql: SqlLab) -> None:
    """`deletes: ignore`, and a row that the target never had."""
    stays = {"before": {"id": 1}, "after": {"id": 1}, "offset": 5, "moves_key": True}
    made = {"before": None, "after": {"id": 2, "note": "b"}, "offset": 5, "index": 1, "moves_key": True}
    with sql.handler() as handler:
        handler.handle(orders({"id": 3, "note": "a", "coupon": "b"}, types=TYPES))
        handler.handle(orders(stays, {**made, "lacks": frozenset({"coupon"})}, types=TYPES))
    assert [row["id"] for row in sql.rows()] == [2, 3]


def test_columns_that_the_target_has_not_make_no_row_whole(sql: SqlLab) -> None:
    sql.make("shop.orders", "id int PRIMARY KEY, note varchar(20), coupon varchar(20)")
    made = {"before": None, "after": {"id": 2, "note": "b", "more": 1}, "offset": 5, "index": 1}
    gone: dict[str, Any] = {"before": {"id": 1}, "after": None, "offset": 5, "moves_key": True}
    with sql.handler(new_columns="ignore") as handler:
        handler.handle(orders({"id": 1, "note": "a", "coupon": "b"}, types=TYPES))
        handler.handle(orders(gone, {**made, "moves_key": True, "lacks": frozenset({"coupon"})}))
    assert sql.rows() == [{"id": 2, "note": "b", "coupon": "b"}]


@pytest.mark.parametrize("value", [1.239, "1.239", "-1e-3"])
def test_digits_that_a_column_does_not_keep_are_rejected(sql: SqlLab, value: Any) -> None:
    if sql.dialect == "sqlite":
        return  # it keeps them
    sql.make("shop.orders", "id int PRIMARY KEY, total decimal(10,2)")
    with sql.handler() as handler:
        handler.handle(orders({"id": 1, "total": "1.50"}, {"id": 2, "total": 2.5}))
        with pytest.raises(Rejected, match="has more than 2 digits after the point"):
            handler.handle(orders({"id": 3, "total": value}, offset=5))
