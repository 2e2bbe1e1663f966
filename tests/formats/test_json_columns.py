"""JSON values, with and without a column type."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_messages import decode, record

from worker.formats.interface import UndecodableRecord
from worker.formats.json_rows import compact, number
from worker.formats.own_json.rows import TYPE_NAMES, converter


def read(type_text: str | None, sent: str) -> Any:
    """A column's value; `sent` is JSON."""
    columns = {} if type_text is None else {"c": type_text}
    (change,) = decode(record(b'{"id": 1, "c": ' + sent.encode() + b"}"), columns=columns)
    return (change.after or {})["c"]


VALUES: list[tuple[str | None, str, Any]] = [
    (None, "7", 7),
    (None, "123456789012345678901234567890", 123456789012345678901234567890),
    (None, "1.50", 1.5),
    (None, "0.1", 0.1),
    (None, "9007199254740993.5", Decimal("9007199254740993.5")),
    (None, "1E400", Decimal("1E400")),
    (None, "true", True),
    (None, "null", None),
    (None, '"2025-01-01"', "2025-01-01"),
    (None, '{"b": [1.50, null], "a": "x y"}', '{"b":[1.50,null],"a":"x y"}'),
    (None, "[ 1,2 ]", "[1,2]"),
    ("bigint unsigned", "18446744073709551615", 18446744073709551615),
    ("int", '"7"', 7),
    ("tinyint(1)", "true", 1),
    ("bit(8)", "255", 255),
    ("decimal(12,2)", "9061.5", Decimal("9061.50")),
    ("decimal(38,10)", "9999999999999999999999999999.9999999999", Decimal("9" * 28 + "." + "9" * 10)),
    ("decimal(12,2)", '"9061.50"', Decimal("9061.50")),
    ("decimal(12,2)", "7", Decimal("7.00")),
    ("double", "7", 7.0),
    ("double", "0.1", 0.1),
    ("float", "0.1", 0.10000000149011612),
    ("date", '"2025-02-28"', date(2025, 2, 28)),
    ("date", '"0000-00-00"', None),
    ("datetime(6)", '"2025-02-28T10:20:30.123456"', datetime(2025, 2, 28, 10, 20, 30, 123456)),
    ("timestamp", '"2025-02-28 10:20:30"', datetime(2025, 2, 28, 10, 20, 30, tzinfo=UTC)),
    ("timestamp(3)", '"2025-02-28T10:20:30.5Z"', datetime(2025, 2, 28, 10, 20, 30, 500000, tzinfo=UTC)),
    ("timestamp", '"2025-02-28T10:20:30.1234560Z"', datetime(2025, 2, 28, 10, 20, 30, 123456, tzinfo=UTC)),
    ("timestamp", '"2025-02-28T10:20:30+08:00"', datetime(2025, 2, 28, 2, 20, 30, tzinfo=UTC)),
    ("timestamp", '"0000-00-00 00:00:00"', None),
    ("time", '"-838:59:59"', -timedelta(hours=838, minutes=59, seconds=59)),
    ("year", "2025", 2025),
    ("varchar(9)", '"x"', "x"),
    ("varchar(9)", "5", "5"),
    ("text", "1.5", "1.5"),
    ("uuid", '"a-b"', "a-b"),
    ("boolean", "true", True),
    ("boolean", "0", False),
    ("boolean", '"t"', True),
    ("enum('a','b')", '"b"', "b"),
    ("set('b','a')", '["a", "b"]', ("b", "a")),
    ("set('b','a')", '"a,b"', ("b", "a")),
    ("set('b','a')", '""', ()),
    ("blob", '"AP8="', b"\x00\xff"),
    ("binary(4)", '"AP8="', b"\x00\xff\x00\x00"),
    ("binary(999999999999)", '"AP8="', b"\x00\xff"),  # no type of MySQL: nothing is filled up
    ("json", '{"a": 1.50}', '{"a":1.50}'),
    ("json", '"{\\"a\\": 1.50}"', '{"a":1.50}'),
    ("json", "1.50", "1.50"),
    ("json", "true", "true"),
    ("json", "null", None),
    ("point", '"POINT (1 2)"', bytes.fromhex("00000000 0101000000 000000000000f03f 0000000000000040")),
]


@pytest.mark.parametrize(("type_text", "sent", "value"), VALUES)
def test_a_value_is_what_its_type_says_or_what_json_has(type_text: str | None, sent: str, value: Any) -> None:
    found = read(type_text, sent)
    assert (type(found), str(found)) == (type(value), str(value))


@pytest.mark.parametrize(
    ("type_text", "sent", "said"),
    [
        ("int", "1.5", "column 'c' of type int holds 1.5: no integer"),
        ("int", "[1]", r"holds \[1\]: an object or an array"),
        ("decimal(3,1)", '"x"', "no number"),
        ("date", "20250228", "no date"),
        ("datetime", '"2025-02-28T10:20:30Z"', "no date"),
        ("timestamp", "1763000000", "no text"),
        ("timestamp", '"2025-02-28T10:20:30.1234567Z"', "column 'c' of type timestamp"),
        ("timestamp", '"2025-02-28T99:20:30Z"', "column 'c' of type timestamp"),
        ("boolean", '"yes"', "neither true nor false"),
        ("boolean", "[]", "neither true nor false"),
        ("enum('a')", '"b"', "neither an index nor a label"),
        ("set('a')", '["b"]', "not one of its 1 labels"),
        ("set('a')", "[[]]", "not one of its 1 labels"),
        ("blob", '"%"', "no base64"),
        ("blob", "5", "no text"),
        ("json", '"no json"', "column 'c' of type json holds 'no json'"),
        ("point", '"CIRCLE (1)"', "not a geometry"),
        ("varchar(9)", "{}", "an object or an array"),
    ],
)
def test_a_value_that_is_not_of_its_type_is_refused_with_its_column(
    type_text: str, sent: str, said: str
) -> None:
    with pytest.raises(UndecodableRecord, match=said):
        read(type_text, sent)


def test_every_type_that_may_be_named_is_read() -> None:
    """As itself or as a value of its kind; `json` alone is written out with the objects and arrays."""
    assert [name for name in TYPE_NAMES if converter(name) is None] == ["json"]


@given(st.decimals(allow_nan=False, allow_infinity=False) | st.floats(allow_nan=False, allow_infinity=False))
def test_no_number_loses_a_digit(value: Decimal | float) -> None:
    text = repr(value) if isinstance(value, float) else f"{value:E}"
    found = number(text)
    assert Decimal(repr(found) if isinstance(found, float) else found) == Decimal(text)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"b" : 1.50,\n "a": [ ] }', '{"b":1.50,"a":[]}'),
        (rb'{"\u00e9":"\ud83d\ude00\/\u0001\n"}', '{"é":"😀/\\u0001\\n"}'),
        (rb'"a \" b\\"', r'"a \" b\\"'),
        (b"1e100", "1e100"),
    ],
)
def test_json_is_compact_and_spelled_as_it_was(raw: bytes, expected: str) -> None:
    assert compact(raw) == expected
