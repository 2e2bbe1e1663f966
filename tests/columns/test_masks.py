"""What masks leave of values, and that it stays so from release to release."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from ruling import VECTOR

from handlers import BeyondCalendar
from worker.column_rules.forms import canonical, cast_of
from worker.column_rules.masks import mask_of
from worker.column_rules.settings import MaskRule

VECTORS = [
    # docs/columns.md shows the first: openssl dgst -sha256 -hmac "$SECRET"
    ("ada@example.org", b"ada@example.org"),
    (7, b"7"),
    (True, b"1"),
    (Decimal("7.50"), b"7.5"),
    (Decimal("700"), b"700"),
    (Decimal("0.00"), b"0"),
    (7.0, b"7"),
    (0.1, b"0.1"),
    (date(2026, 11, 1), b"2026-11-01"),
    (datetime(2026, 11, 1, 12), b"2026-11-01 12:00:00.000000"),
    (datetime(2026, 11, 1, 12, tzinfo=UTC), b"2026-11-01 12:00:00.000000+00:00"),
    (datetime(2026, 11, 1, 13, tzinfo=timezone(timedelta(hours=1))), b"2026-11-01 12:00:00.000000+00:00"),
    (timedelta(seconds=1), b"1000000"),
    (BeyondCalendar("infinity"), b"infinity"),
    (BeyondCalendar("0044-03-15 BC"), b"0044-03-15 BC"),
    (b"\xff\x00", b"\xff\x00"),
    (("b", "a"), b'["b","a"]'),
    ({"b": Decimal("1.0"), "a": None}, b'{"a":null,"b":"1"}'),
    ("Grüße", "Grüße".encode()),
]


@pytest.mark.parametrize(("value", "written"), VECTORS)
def test_the_bytes_of_a_value_are_always_the_same(value: Any, written: bytes) -> None:
    assert canonical(value) == written


def test_the_documented_hash() -> None:
    mask = mask_of(MaskRule(kind="hash"), "correct horse battery staple")
    # printf %s ada@example.org | openssl dgst -sha256 -hmac "correct horse battery staple"
    assert mask.leaves("ada@example.org") == VECTOR
    assert mask.leaves(None) is None


@pytest.mark.parametrize(
    ("first", "last", "value", "left"),
    [
        (1, 0, "ada", "a***"),
        (0, 4, "4111111111111111", "***1111"),
        (2, 2, "abcd", "***"),
        (2, 2, "abcde", "ab***de"),
        (0, 4, 4111111111111111, "***1111"),
        (1, 1, "", "***"),
        (1, 1, None, None),
    ],
)
def test_a_partial_mask_leaves_what_it_says_and_never_a_whole_value(
    first: int, last: int, value: Any, left: str | None
) -> None:
    assert mask_of(MaskRule(kind="partial", first=first, last=last), None).leaves(value) == left


def test_a_mask_says_what_its_column_is_then() -> None:
    assert mask_of(MaskRule(kind="hash"), "0123456789abcdef").type == "varchar(64)"
    assert mask_of(MaskRule(kind="partial", first=1, last=4), None).type == "varchar(8)"
    assert mask_of(MaskRule(kind="redact"), None).type == "varchar(3)"
    assert mask_of(MaskRule(kind="null"), None).type is None


def test_different_bytes_are_different_texts() -> None:
    """A key may be cast to text: a byte that is no text must not be written as other bytes are."""
    text = cast_of("text")
    assert text is not None
    values = [b"\xff", b"\\xff", b"\\\xff", b"\\\\xff", b"a", "ü".encode()]
    assert [text.convert(value) for value in values[-2:]] == ["a", "ü"]
    assert len({text.convert(value) for value in values}) == len(values)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (timedelta(hours=36), "36:00:00"),
        (-timedelta(hours=1, microseconds=1), "-01:00:00.000001"),
        (("new", "paid"), "new,paid"),
        ((), ""),
        (Decimal("7.50"), "7.5"),
    ],
)
def test_a_time_and_a_set_are_texts_as_mysql_writes_them(value: Any, text: str) -> None:
    cast = cast_of("text")
    assert cast is not None
    assert cast.convert(value) == text


@pytest.mark.parametrize("value", ["1e400", "-1e309", 10**400, Decimal("1e400"), "nan"])
def test_what_is_beyond_a_double_cannot_be_cast_to_one(value: Any) -> None:
    double = cast_of("double")
    assert double is not None
    with pytest.raises((ValueError, ArithmeticError)):
        double.convert(value)
