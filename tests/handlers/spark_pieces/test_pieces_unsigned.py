"""Integers of a source that does not tell which are unsigned: DTS."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from piece_lab import change, one_piece, rows_of, types_of

from handlers import Rejected
from handlers.spark.rows.pieces import RowPiece
from handlers.spark.rows.shape import Shape

WIDEST = [
    ("tinyint", 255, "smallint"),
    ("smallint", 65535, "int"),
    ("int", 2**32 - 1, "bigint"),
    ("bigint", 2**64 - 1, "decimal(20,0)"),
]


def kept(source: str, *values: Any, known: Shape | None = None, **options: Any) -> RowPiece:
    types = {"id": "bigint", "n": source}
    changes = (change(n, "insert", {"id": n, "n": value}, types=types) for n, value in enumerate(values))
    return one_piece(*changes, known=known, **options)


@pytest.mark.parametrize(("source", "value", "spark"), WIDEST)
@pytest.mark.parametrize("form", [int, str])
@pytest.mark.parametrize("mode", ["replica", "history", "changelog"])
def test_a_value_that_only_an_unsigned_column_holds_makes_it_one(
    source: str, value: int, spark: str, form: Any, mode: Any
) -> None:
    piece = kept(source, None, form(value), 1, mode=mode)
    assert types_of(piece)["n"] == spark
    assert [row["n"] for row in rows_of(piece)] == [None, value, 1]


@pytest.mark.parametrize(("source", "value", "spark"), WIDEST)
def test_it_stays_one_when_smaller_values_follow(source: str, value: int, spark: str) -> None:
    before = kept(source, value)
    after = kept(source, 1, known=before.shape)
    assert types_of(after)["n"] == spark
    assert after.shape == before.shape
    assert types_of(kept(source, 1))["n"] == source


@pytest.mark.parametrize(("source", "most", "_"), WIDEST)
def test_what_no_type_of_the_source_holds_is_rejected(source: str, most: int, _: str) -> None:
    for values in ((most + 1,), (most, -1), (most, "x")):
        with pytest.raises(Rejected, match=rf"column 'n' \({source}\) holds .* does not fit {source}: "):
            kept(source, *values)


def test_a_key_may_be_unsigned_too() -> None:
    types = {"id": "bigint", "n": "int"}
    made = [
        change(0, "insert", {"id": 2**63, "n": 1}, types=types),
        change(1, "update", {"id": Decimal(2**63), "n": 2}, types=types),
        change(2, "delete", {"id": 2**64 - 1, "n": 2}, types=types),
    ]
    piece = one_piece(*made)
    assert types_of(piece) == {"id": "decimal(20,0)", "n": "int"}
    assert [(row["id"], row["n"]) for row in rows_of(piece)] == [(2**63, 2), (2**64 - 1, None)]
