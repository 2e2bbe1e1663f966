"""What no piece can keep is rejected, with its place and what to do."""

from __future__ import annotations

from typing import Any

import pytest
from piece_lab import Row, change, cut, one_piece, rows_of

from handlers import Rejected

TYPES = {"id": "int", "name": "varchar(20)", "size": "bigint"}


def row(id_: int | None, name: str | None = None, size: int | None = None) -> Row:
    return {"id": id_, "name": name, "size": size}


def typed(offset: int, op: str, after: Row | None = None, before: Row | None = None, **options: Any) -> Any:
    return change(offset, op, after, before, types=TYPES, **options)


@pytest.mark.parametrize("mode", ["replica", "history"])
@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"name": "x", "size": 1}, r"the change at cdc\[3\] offset 1 does not have the key column 'id'"),
        (row(None, "x"), r"the key column 'id' is NULL at cdc\[3\] offset 1"),
    ],
)
def test_a_row_without_its_key_is_rejected(mode: Any, second: Row, message: str) -> None:
    with pytest.raises(Rejected, match=f"^shop.orders: {message}") as told:
        cut(typed(0, "insert", row(1)), typed(1, "update", second), mode=mode, table="shop.orders")
    assert told.value.at == 1


def test_an_update_whose_new_row_lacks_the_key_has_it_from_the_old_one() -> None:
    [found] = rows_of(one_piece(typed(0, "update", {"name": "b", "size": 1}, row(7, "a"))))
    assert (found["id"], found["name"]) == (7, "b")


@pytest.mark.parametrize(
    ("mode", "name"),
    [("replica", "_OP"), ("replica", "_row"), ("history", "_valid_from"), ("changelog", "_before")],
)
def test_a_column_with_the_name_of_an_added_one_needs_another_prefix(mode: Any, name: str) -> None:
    taken = change(1, "insert", {"id": 1, name: 5})
    with pytest.raises(
        Rejected, match=rf"column '{name}', which is also .* set `prefix` .*offset 1\)"
    ) as told:
        cut(change(0, "insert", {"id": 0}), taken, mode=mode)
    assert told.value.at == 1
    [found] = rows_of(one_piece(taken, mode=mode, prefix="cdc_"))
    assert found[name] == 5


def test_columns_that_differ_by_case_alone_are_rejected() -> None:
    with pytest.raises(
        Rejected, match=r"columns 'Name' and 'name', which are the same name in Spark"
    ) as told:
        cut(change(0, "insert", {"id": 1, "Name": "a"}), change(1, "insert", {"id": 2, "name": "b"}))
    assert told.value.at == 1


def test_a_value_beyond_its_type_is_told_with_its_place_before_any_piece_is_handed_out() -> None:
    changes = [
        change(0, "insert", {"id": 1}, types={"id": "int"}),
        change(7, "insert", {"id": 1}, types={"id": "tinyint"}),
        change(8, "insert", {"id": 300}, types={"id": "tinyint"}),
    ]
    message = (
        r"^shop.t: column 'id' \(tinyint\) holds '300' at cdc\[3\] offset 8, which does not fit tinyint: .*"
    )
    with pytest.raises(Rejected, match=message) as told:
        cut(*changes, table="shop.t")
    assert told.value.at == 2
    with pytest.raises(Rejected, match=r"column 'name' .* offset 1, which does not fit string") as told:
        cut(typed(0, "insert", row(1)), typed(1, "insert", row(2, "\ud800")))
    assert told.value.at == 1


def test_a_value_that_a_row_has_from_an_earlier_change_is_told_with_that_change() -> None:
    types = {"id": "int", "a": "tinyint", "b": "tinyint"}
    with pytest.raises(Rejected, match=r"column 'a'.*offset 1,") as told:
        cut(
            change(0, "insert", {"id": 1, "a": 1, "b": 1}, types=types),
            change(1, "update", {"id": 2, "a": 1000}, types=types),
            change(2, "update", {"id": 2, "b": 5}, types=types),
        )
    assert told.value.at == 1


def test_what_a_later_change_of_the_batch_replaced_need_not_fit() -> None:
    types = {"id": "int", "a": "tinyint"}
    piece = one_piece(
        change(0, "insert", {"id": 1, "a": 1000}, types=types),
        change(1, "update", {"id": 1, "a": 5}, {"id": 1, "a": 1000}, types=types),
    )
    assert [each["a"] for each in rows_of(piece)] == [5]


def test_a_change_without_a_row_is_rejected() -> None:
    with pytest.raises(Rejected, match=r"the delete at cdc\[3\] offset 0 has no row"):
        cut(typed(0, "delete"))


@pytest.mark.parametrize("value", [1e39, -1e39, "1e39", 10**39])
def test_a_float_beyond_its_range_is_rejected_and_not_made_infinite(value: Any) -> None:
    types = {"id": "int", "f": "float"}
    infinite = change(0, "insert", {"id": 1, "f": float("inf")}, types=types)
    with pytest.raises(Rejected, match=r"column 'f' \(float\) holds .* offset 1, which does not fit") as told:
        cut(infinite, change(1, "insert", {"id": 2, "f": value}, types=types))
    assert told.value.at == 1
    assert rows_of(one_piece(infinite))[0]["f"] == float("inf")
