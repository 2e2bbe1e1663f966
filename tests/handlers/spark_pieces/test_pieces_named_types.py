"""The option `columns`: what a column's type is, whatever the source tells."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from piece_lab import change, one_piece, rows_of, types_of

from handlers import Rejected

NAIVE, AWARE = datetime(2026, 1, 2, 3, 4, 5), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

READ = [
    ("boolean", [True, 1, 0, "true", "F"], [True, True, False, True, False]),
    ("tinyint", [5, "5", 5.0, Decimal("5.00"), True], [5, 5, 5, 5, 1]),
    ("bigint", ["-9223372036854775808"], [-(2**63)]),
    ("float", [0.5, 0.1, "0.25", 3], [0.5, 0.10000000149011612, 0.25, 3.0]),
    ("double", [0.1, "0.1", Decimal("0.1"), 7], [0.1, 0.1, 0.1, 7.0]),
    ("decimal(12,2)", [1, "1.5", 1.25, Decimal("1.500")], list(map(Decimal, ("1", "1.5", "1.25", "1.5")))),
    ("string", [5, "a", Decimal("1.50"), NAIVE, ("a", "b")], ["5", "a", "1.50", NAIVE.isoformat(), "a,b"]),
    ("binary", [b"\xff", "é"], [b"\xff", b"\xc3\xa9"]),
    ("date", [date(2026, 1, 2), "2026-01-02", datetime(2026, 1, 2)], [date(2026, 1, 2)] * 3),
    ("timestamp_ntz", [NAIVE, "2026-01-02T03:04:05", AWARE], [NAIVE] * 3),
    ("timestamp", [AWARE, "2026-01-02T04:04:05+01:00", "2026-01-02 03:04:05", NAIVE], [AWARE] * 4),
    ("array<string>", [("a", "b"), ["a", "b"], "a,b"], [["a", "b"]] * 3),
]  # fmt: skip


@pytest.mark.parametrize(("text", "values", "expected"), READ, ids=[text for text, _, _ in READ])
@pytest.mark.parametrize("types", [None, {"id": "bigint", "V": "json"}], ids=["told none", "told another"])
def test_the_type_that_the_configuration_names_wins(
    text: str, values: list[Any], expected: Any, types: Any
) -> None:
    changes = [
        change(n, "insert", {"id": n, "V": value}, types=types) for n, value in enumerate([*values, None])
    ]
    piece = one_piece(*changes, columns={"v": text})
    assert types_of(piece)["V"] == text
    assert [each["V"] for each in rows_of(piece)] == [*expected, None]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("boolean", 2), ("boolean", "yes"), ("tinyint", 128), ("int", 1.5), ("int", "x"), ("bigint", 2**63),
        ("bigint", "1e99999999"), ("float", 0.123456789012), ("float", 1e39), ("double", 2**53 + 1),
        ("double", Decimal("0.1234567890123456789")), ("decimal(5,2)", Decimal("1.234")),
        ("decimal(5,2)", 1000), ("decimal(5,2)", Decimal("NaN")), ("binary", 5), ("date", NAIVE), ("date", 5),
        ("timestamp", "soon"), ("timestamp", "2026-01-02T03:04:05.1234567"), ("timestamp_ntz", 5),
        ("array<string>", [1]), ("decimal(20,0)", -(10**20)), ("date", "2026-02-31"),
    ],
    ids=str,
)  # fmt: skip
def test_a_value_that_the_named_type_would_change_is_rejected(text: str, value: Any) -> None:
    with pytest.raises(Rejected, match=r"column 'v' \(no type\) holds .* which does not fit"):
        one_piece(change(0, "insert", {"id": 1, "v": value}), columns={"v": text})


def test_a_column_with_a_named_type_is_there_before_its_first_value() -> None:
    assert (
        types_of(one_piece(change(0, "insert", {"id": 1, "v": None}), columns={"v": "date"}))["v"] == "date"
    )
