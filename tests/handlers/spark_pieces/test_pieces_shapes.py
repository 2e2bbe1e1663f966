"""Which columns a piece has, of what type, and when that is another shape than the log's."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from piece_lab import Row, change, cut, one_piece, rows_of, types_of

from handlers.spark.rows.shape import Shape
from handlers.spark.rows.spark_types import can_widen

NAIVE, AWARE = datetime(2026, 1, 2, 3, 4, 5), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def untyped(*rows: Row, op: str = "insert", **options: Any) -> Any:
    return one_piece(
        *(change(number, op, {"id": number, **row}) for number, row in enumerate(rows)), **options
    )


def inferred(*values: Any, known: Shape | None = None) -> str | None:
    return types_of(untyped(*({"v": value} for value in values), known=known)).get("v")


def kept_as(*values: Any) -> Shape:
    return untyped(*({"v": value} for value in values)).shape


# ---- inferred


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, None, -5], "bigint"),
        ([2**63], "decimal(28,0)"),
        ([10**37], "decimal(38,0)"),
        ([10**38], "string"),
        ([1.5, None], "double"),
        ([1.5, 2, 2**53], "double"),
        ([1.5, 2**53 + 1], "string"),
        ([True, False], "boolean"),
        ([True, 1], "string"),
        (["a", None], "string"),
        (["5", 5], "string"),
        ([b"\xff"], "binary"),
        ([b"\xff", "a"], "string"),
        ([date(2026, 1, 2)], "date"),
        ([NAIVE], "timestamp_ntz"),
        ([NAIVE, date(2026, 1, 2)], "timestamp_ntz"),
        ([AWARE], "timestamp"),
        ([AWARE, NAIVE], "string"),
        ([AWARE, date(2026, 1, 2)], "string"),
        ([timedelta(hours=-30)], "string"),
        ([("a", "b"), ()], "array<string>"),
        ([["a", "b"]], "string"),
        ([{"a": 1}], "string"),
        ([Decimal("1.5")], "decimal(20,2)"),
        ([Decimal("1.5"), 7, 2.125], "decimal(22,4)"),
        ([Decimal("1e18")], "decimal(28,0)"),
        ([Decimal("0." + "1" * 38)], "decimal(38,38)"),
        ([Decimal("1." + "1" * 38)], "string"),
        ([Decimal("NaN")], "string"),
        ([None, None], None),
    ],
    ids=str,
)
def test_where_nothing_tells_a_type_the_values_do(values: list[Any], expected: str | None) -> None:
    assert inferred(*values) == expected


def test_values_of_other_types_are_kept_as_text() -> None:
    values = [
        timedelta(hours=-30, microseconds=5),
        {"a": [1, None]},
        [1, "x"],
        b"\xff",
        True,
        Decimal("1E+2"),
        0.5,
    ]
    piece = untyped({"v": "a text"}, *({"v": value} for value in values))
    assert [each["v"] for each in rows_of(piece)][1:] == [
        "-29:59:59.999995", '{"a":[1,null]}', '[1,"x"]', "/w==", "true", "100", "0.5",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ([2**63], [1]),
        ([Decimal("1.5")], [7, 0.25, Decimal("2.10")]),
        ([1], [7.0, Decimal("8.00")]),
        ([1.5], [7]),
        (["a"], [1, None, NAIVE]),
        ([NAIVE], [date(2026, 1, 2)]),
        ([True], [None]),
        ([("a",)], [()]),
    ],
    ids=str,
)
def test_values_that_fit_what_the_column_was_kept_as_do_not_change_it(
    before: list[Any], now: list[Any]
) -> None:
    known = kept_as(*before)
    assert untyped(*({"v": value} for value in now), known=known).shape is known


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ([1], [2**63], "decimal(28,0)"),
        ([1], [1.5], "double"),
        ([1], [Decimal("1.25")], "decimal(22,2)"),
        ([Decimal("1.25")], [Decimal("1.12345")], "decimal(24,6)"),
        ([Decimal("1.25")], [10**19], "decimal(30,2)"),
        ([date(2026, 1, 2)], [NAIVE], "timestamp_ntz"),
        ([AWARE], [NAIVE], "string"),
        ([1], ["x"], "string"),
        ([True], [1], "string"),
        ([b"x"], ["x"], "string"),
        ([1.5], [Decimal("0.1234567890123456789")], "string"),
    ],
    ids=str,
)
def test_a_column_is_widened_so_that_it_holds_what_it_held_and_what_comes(
    before: list[Any], now: list[Any], expected: str
) -> None:
    assert inferred(*now, known=kept_as(*before)) == expected


@pytest.mark.parametrize("value", [2**63, Decimal("1.25"), Decimal("0.123456")], ids=str)
def test_whole_numbers_become_decimals_to_which_delta_can_widen(value: Any) -> None:
    wider = inferred(value, known=kept_as(1))
    assert wider is not None
    assert can_widen("bigint", wider)


def test_a_column_without_any_value_yet_is_left_out_until_one_comes() -> None:
    first = untyped({"v": None, "w": 1})
    assert types_of(first) == {"id": "bigint", "w": "bigint"}
    second = untyped({"v": "x", "w": 2}, known=first.shape)
    assert types_of(second) == {"id": "bigint", "w": "bigint", "v": "string"}
    assert untyped({"v": None, "w": None}, known=second.shape).shape is second.shape


def test_a_table_whose_columns_all_have_no_value_has_strings() -> None:
    piece = one_piece(change(0, "insert", {"v": None}, key=()))
    assert types_of(piece) == {"v": "string"}
    assert piece.rows.num_rows == 1


# ---- what was known before


def test_a_column_that_does_not_come_stays_in_the_shape_where_no_types_are_told() -> None:
    known = untyped({"v": "x", "w": 1}).shape
    piece = one_piece(change(0, "update", {"id": 0, "w": 5}), change(1, "insert", {"id": 1}), known=known)
    assert piece.shape is known
    assert [(each["_absent"], each["v"], each["w"]) for each in rows_of(piece)] == [
        (["v"], None, 5),
        (None, None, None),
    ]


def test_the_order_of_the_columns_makes_no_new_shape() -> None:
    known = untyped({"v": "x", "w": 1}).shape
    assert one_piece(change(0, "insert", {"w": 2, "v": "y", "id": 1}), known=known).shape is known
    types = {"id": "bigint", "v": "text", "w": "bigint"}
    turned = {"w": "bigint", "v": "text", "id": "bigint"}
    told = one_piece(change(0, "insert", {"id": 1, "v": "x", "w": 2}, types=types), known=known)
    assert told.shape is known
    again = one_piece(change(0, "insert", {"w": 2, "v": "x", "id": 1}, types=turned), known=known)
    assert again.shape is known
    assert rows_of(again) == rows_of(told)


def test_what_the_source_tells_is_the_shape_also_where_it_is_narrower_or_lacks_a_column() -> None:
    known = one_piece(
        change(0, "insert", {"id": 1, "v": 2, "gone": 3}, types={"id": "int", "v": "bigint", "gone": "int"})
    ).shape
    row = {"id": 1, "v": 2}
    now = one_piece(change(1, "update", row, row, types={"id": "int", "v": "smallint"}), known=known)
    assert types_of(now) == {"id": "int", "v": "smallint"}
    assert not now.partial


def test_a_column_that_is_told_but_does_not_come_is_absent() -> None:
    types = {"id": "int", "v": "text", "w": "bigint"}
    piece = one_piece(change(0, "update", {"id": 1, "v": "x"}, types=types))
    assert types_of(piece) == {"id": "int", "v": "string", "w": "bigint"}
    assert rows_of(piece)[0]["_absent"] == ["w"]


def test_columns_that_the_source_does_not_tell_are_inferred_beside_those_it_tells() -> None:
    types = {"total": "decimal(12,2)", "of_another_table": "int"}
    piece = one_piece(change(0, "insert", {"id": 1, "total": Decimal("1.50"), "v": "x"}, types=types))
    assert types_of(piece) == {"total": "decimal(12,2)", "id": "bigint", "v": "string"}
    sparse = one_piece(change(1, "update", {"id": 1, "v": "y"}, types=types), known=piece.shape)
    assert sparse.shape is piece.shape


def test_a_column_that_is_spelled_in_another_case_takes_the_place_of_the_old_one() -> None:
    known = untyped({"Name": "x"}).shape
    assert types_of(untyped({"name": 5}, known=known)) == {"id": "bigint", "name": "string"}


def test_the_pieces_of_one_batch_know_of_each_other() -> None:
    first, second = cut(
        change(0, "insert", {"id": 1, "v": Decimal("0.125")}),
        change(1, "insert", {"id": 1, "v": Decimal("7")}, types={"id": "bigint"}),
    )
    assert first.shape is second.shape  # type: ignore[union-attr]  # both hold rows


# ---- told by the source, but not all of it


def test_decimals_without_sizes_keep_all_their_digits() -> None:
    for text in ("decimal", "numeric", "decimal(65,30)"):
        types = {"id": "int", "v": text}

        def piece(value: Any, known: Shape | None = None, types: Any = types) -> Any:
            return one_piece(change(0, "insert", {"id": 1, "v": value}, types=types), known=known)

        first = piece(Decimal("11.25"))
        assert types_of(first)["v"] == "decimal(20,2)"
        assert piece(Decimal("7"), first.shape).shape is first.shape
        wide = piece(Decimal("0.1234567"), first.shape)
        assert types_of(wide)["v"] == "decimal(28,10)"
        assert rows_of(wide)[0]["v"] == Decimal("0.1234567")
        assert types_of(piece(Decimal("1" * 39)))["v"] == "string"
        assert "v" not in types_of(piece(None))
    assert (
        types_of(one_piece(change(0, "insert", {"id": 5}, types={"id": "decimal"})))["id"] == "decimal(10,0)"
    )


def test_a_decimal_beyond_38_digits_that_sends_all_of_them_is_a_string() -> None:
    types = {"id": "int", "v": "decimal(65,30)"}
    piece = one_piece(change(0, "insert", {"id": 1, "v": Decimal("1." + "0" * 30)}, types=types))
    assert rows_of(piece)[0]["v"] == "1." + "0" * 30


@pytest.mark.parametrize(
    ("type_", "expected"),
    [("time", "00:00:01.500000"), ("time(1)", "00:00:01.5"), ("time(3)", "00:00:01.500")],
)
def test_a_time_keeps_its_digits_whatever_its_type_tells(type_: str, expected: str) -> None:
    types = {"id": "int", "v": type_}
    piece = one_piece(change(0, "insert", {"id": 1, "v": timedelta(seconds=1.5)}, types=types))
    assert rows_of(piece)[0]["v"] == expected


def test_boolean_is_what_its_values_are() -> None:
    types = {"id": "int", "v": "boolean"}

    def kept(*values: Any) -> Any:
        return types_of(
            one_piece(*(change(n, "insert", {"id": n, "v": v}, types=types) for n, v in enumerate(values)))
        )

    assert kept(True, None)["v"] == "boolean"
    assert kept(1, 0, -1)["v"] == "tinyint"
    assert "v" not in kept(None)
