"""Rows that get another key where the source tells none, and keys by which no row can be found."""

from __future__ import annotations

from typing import Any

import pytest
from sql_lab import SqlLab, orders

from handlers import Rejected


@pytest.mark.parametrize("old", [{"id": 1}, {"id": 1, "a": 5, "b": "big"}], ids=["key", "whole"])
def test_a_row_that_moves_by_the_targets_own_key_keeps_what_its_record_does_not_tell(
    sql: SqlLab, old: dict[str, Any]
) -> None:
    """As of PostgreSQL with an unchanged large value, and of minimal row images."""
    types = {"id": "int", "a": "int", "b": "text"}
    sql.make("shop.orders", "id int PRIMARY KEY, a int, b text")
    with sql.handler() as handler:
        first = [{"id": 1, "a": 5, "b": "big"}, {"id": 2, "a": 0, "b": "in its way"}]
        handler.handle(orders(*first, key=None, types=types))
        moved = {"before": old, "after": {"id": 2, "a": 6}}
        again = {"before": {"id": 2, "a": 6}, "after": {"id": 3, "a": 7}}
        handler.handle(orders(moved, again, {"id": 4, "a": 8, "b": "c"}, key=None, types=types, offset=2))
    assert sql.rows() == [{"id": 3, "a": 7, "b": "big"}, {"id": 4, "a": 8, "b": "c"}]


def test_a_row_that_moves_and_was_never_seen_has_what_its_old_image_tells(sql: SqlLab) -> None:
    types = {"id": "int", "a": "int", "b": "text"}
    sql.make("shop.orders", "id int PRIMARY KEY, a int, b text")
    moved = {"before": {"id": 1, "a": 5, "b": "big"}, "after": {"id": 2, "a": 6}}
    with sql.handler() as handler:
        handler.handle(orders(moved, key=None, types=types))
    assert sql.rows() == [{"id": 2, "a": 6, "b": "big"}]


@pytest.mark.parametrize(("key", "kind"), [([1, 2], "a list"), ({"a": 1}, "an object")])
def test_a_key_that_is_no_single_value_is_rejected(sql: SqlLab, key: Any, kind: str) -> None:
    with sql.handler() as handler:
        with pytest.raises(Rejected, match=f"key column id contains {kind}") as told:
            handler.handle(orders({"id": 1, "b": 1}, {"id": key, "b": 1}, offset=0))
        assert told.value.at == 1
