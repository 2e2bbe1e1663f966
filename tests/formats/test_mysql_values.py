"""Every MySQL type's texts as values: the table of docs/formats.md."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from canal_messages import message
from hypothesis import given
from hypothesis import strategies as st

from handlers.mysql.types import MySQLType, read_type
from handlers.mysql.values import converter_of
from worker.formats.canal.format import Canal
from worker.formats.interface import UndecodableRecord


def read(type_text: str, text: str) -> Any:
    converter = converter_of(type_text)
    return text if converter is None else converter.read(text)


def decode(type_text: str, text: str) -> Any:
    """By a JSON decoder and what is left to do: the quick way."""
    converter = converter_of(type_text)
    if converter is None:
        return text
    value = msgspec.json.decode(msgspec.json.encode(text), type=converter.json_type, strict=False)
    if converter.finish is None or (converter.is_finished is not None and converter.is_finished(value)):
        return value
    return converter.finish(value)


VALUES = [
    ("tinyint", "-128", -128),
    ("tinyint(1)", "1", 1),
    ("tinyint unsigned", "255", 255),
    ("SMALLINT(6)", "-32768", -32768),
    ("mediumint(8) unsigned zerofill", "16777215", 16777215),
    ("int", "2147483647", 2147483647),
    ("integer", "7", 7),
    ("bigint", "-9223372036854775808", -9223372036854775808),
    ("bigint unsigned", "18446744073709551615", 18446744073709551615),
    ("bool", "1", 1),
    ("bit(64)", "18446744073709551615", 18446744073709551615),
    ("bit(1)", "0", 0),
    ("year", "2155", 2155),
    ("year(4)", "1901", 1901),
    ("decimal(10,2)", "9061.0", Decimal("9061.00")),
    ("decimal(10,2)", "-0.50", Decimal("-0.50")),
    ("decimal(10,2)", "7", Decimal("7.00")),
    ("decimal(38,10)", "1E-10", Decimal("0.0000000001")),
    ("decimal(38,10)", "-" + "9" * 28 + "." + "9" * 10, Decimal("-" + "9" * 28 + "." + "9" * 10)),
    ("decimal(20,0) unsigned", "99999999999999999999", Decimal("99999999999999999999")),
    ("decimal(65,30)", "9" * 35 + "." + "9" * 30, Decimal("9" * 35 + "." + "9" * 30)),
    ("decimal(5)", "12345", Decimal(12345)),
    ("decimal", "1.50", Decimal("1.50")),
    ("numeric(4, 1)", "2", Decimal("2.0")),
    ("double", "-1.7976931348623157E308", -1.7976931348623157e308),
    ("double(10,2)", "0.1", 0.1),
    ("double precision", "0.1", 0.1),
    ("double unsigned", "4.9E-324", 5e-324),
    ("float", "0.1", 0.10000000149011612),
    ("float", "1.6777216E7", 16777216.0),
    ("float(7,4)", "-3.4E38", -3.3999999521443642e38),
    ("float(53)", "0.1", 0.1),
    ("vector(1)", "\0\0\x80?", b"\0\0\x80?"),
    ("vector(2)", "[1,-2.5]", b"\0\0\x80?\0\0 \xc0"),  # as TiDB's comes
    ("date", "2024-02-29", date(2024, 2, 29)),
    ("date", "9999-12-31", date(9999, 12, 31)),
    ("datetime", "1000-01-01 00:00:00", datetime(1000, 1, 1)),
    ("datetime(3)", "2012-03-13 20:03:04.861", datetime(2012, 3, 13, 20, 3, 4, 861000)),
    ("datetime(6)", "9999-12-31 23:59:59.999999", datetime(9999, 12, 31, 23, 59, 59, 999999)),
    ("timestamp", "2038-01-19 03:14:07", datetime(2038, 1, 19, 3, 14, 7, tzinfo=UTC)),
    ("timestamp(6)", "1970-01-01 00:00:01.000001", datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC)),
    ("time", "20:03:04", timedelta(hours=20, minutes=3, seconds=4)),
    ("time", "-838:59:59", -timedelta(hours=838, minutes=59, seconds=59)),
    ("time(3)", "-00:00:00.500", -timedelta(milliseconds=500)),
    ("time(6)", "838:59:58.999999", timedelta(hours=838, minutes=59, seconds=58, microseconds=999999)),
    ("char(10)", "日本", "日本"),
    ("varchar(20)", "null", "null"),
    ("text", " lead", " lead"),
    ("json", '{"n": 56, "a": [1, 1.50, 1e100]}', '{"n":56,"a":[1,1.50,1e100]}'),
    ("json", ' {"é": "a: b, \\u00e9 \\" 😀"}\n', '{"é":"a: b, \\u00e9 \\" 😀"}'),
    ("json", '{"a": 18446744073709551616, "a": 2}', '{"a":18446744073709551616,"a":2}'),
    ("json", "null", "null"),
    ("json", "no, json: it seems", "no, json: it seems"),
    ("json", '{"a": 1} x', '{"a": 1} x'),
    ("json", "[ " * 100_000, "[ " * 100_000),
    ("json", "", ""),
    ("enum('small','x,l','it''s')", "2", "x,l"),
    ("enum('small','x,l','it''s')", "3", "it's"),
    ("enum('a\\\\b','c)d')", "1", "a\\b"),
    ("ENUM('a\\\\b','c)d')", "2", "c)d"),
    ("enum('a','b')", "0", ""),
    ("enum('a','b')", "b", "b"),
    ("enum('2','1')", "1", "2"),
    ("enum", "3", "3"),
    ("set('a','b','c','d')", "0", ()),
    ("set('a','b','c','d')", "5", ("a", "c")),
    ("set('d','c','b','a')", "9", ("d", "a")),
    ("set('a','b','c')", "c,a", ("a", "c")),
    ("set('a','b','c')", "", ()),
    ("blob", "ÿ\x00é", b"\xff\x00\xe9"),
    ("longblob", "", b""),
    ("varbinary(32)", "@\x00", b"@\x00"),
    ("binary(8)", "ÿ\x00a", b"\xff\x00a\x00\x00\x00\x00\x00"),
    ("binary(3)", "", b"\x00\x00\x00"),
    ("geometry", "\x00\x00\x00\x00\x01\x01", b"\x00\x00\x00\x00\x01\x01"),
    ("point", "\x00\x00\x00\x00\x01ð?", b"\x00\x00\x00\x00\x01\xf0?"),
    ("inet6", "::1", "::1"),
]  # fmt: skip


@pytest.mark.parametrize(("type_text", "text", "value"), VALUES)
def test_a_text_reads_as_the_value_it_stands_for(type_text: str, text: str, value: Any) -> None:
    found = read(type_text, text)
    assert type(found) is type(value)
    assert found == value
    assert str(found) == str(value)  # tells 9061.0 from 9061.00


@pytest.mark.parametrize(("type_text", "text", "value"), VALUES)
def test_the_quick_way_gives_the_same_value(type_text: str, text: str, value: Any) -> None:
    assert repr(decode(type_text, text)) == repr(value)


@pytest.mark.parametrize(
    ("type_text", "text"),
    [
        ("date", "0000-00-00"),
        ("date", "2024-00-00"),
        ("date", "0000-05-17"),
        ("datetime", "0000-00-00 00:00:00"),
        ("datetime(6)", "2024-02-00 10:00:00.000000"),
        ("timestamp", "0000-00-00 00:00:00"),
    ],
)
def test_a_zero_date_is_none(type_text: str, text: str) -> None:
    assert read(type_text, text) is None


@pytest.mark.parametrize(
    ("type_text", "text"),
    [
        ("int", "seven"),
        ("int", "1.5"),
        ("int", "1E400"),
        ("bit(8)", ""),
        ("decimal(10,2)", "1,5"),
        ("double", "0.1.2"),
        ("float", "1E39"),
        ("double", "1E400"),
        ("int", "1_000"),
        ("int", " 7 "),
        ("int", "\uff17"),
        ("int", "NaN"),
        ("double", "1_000"),
        ("double", "\uff17"),
        *(
            (type_text, text)
            for type_text in ("float", "double", "decimal(10,2)", "decimal")
            for text in ("NaN", "sNaN", "Infinity", "-inf", "")
        ),
        ("date", "yesterday"),
        ("date", "2024-02-31"),
        ("datetime", "2023-02-29 10:00:00"),
        ("date", "2024-13-01"),
        ("date", "2024-01-01 00:00:00"),
        ("datetime", "1763000000"),
        ("datetime", "2024-01-01 25:00:00"),
        ("timestamp", "2024-01-01T00:00:00Z"),
        ("time", "10:61:00"),
        ("time", "noon"),
        ("enum('a','b')", "3"),
        ("enum('a','b')", "c"),
        ("set('a','b')", "4"),
        ("set('a','b')", "a,x"),
        ("blob", "日"),
        ("binary(2)", "日"),
    ],
)
def test_a_text_that_is_no_value_of_its_type_is_refused(type_text: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(type_text, text)
    with pytest.raises(ValueError, match=r"."):
        decode(type_text, text)


@pytest.mark.parametrize("text", ["1_000", " 7 ", "\uff17", "1e", "--1", "0x10"])
@pytest.mark.parametrize(
    "type_text", ["decimal", "decimal(10,2)", "int", "double", "float", "bit(8)", "year"]
)
def test_what_only_python_takes_for_a_number_is_refused(type_text: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(type_text, text)
    one = message(mysqlType={"id": "bigint", "n": type_text}, data=[{"id": "7", "n": text}])
    usual = message(mysqlType={"id": "bigint", "n": type_text}, data=[{"id": "7", "n": "1"}])
    canal = Canal()
    for _ in range(200):
        canal.decode(usual, [])
    with pytest.raises(UndecodableRecord):
        canal.decode(one, [])


def test_a_decimal_with_more_digits_than_its_type_keeps_them() -> None:
    assert str(read("decimal(10,2)", "1.2345")) == "1.2345"
    assert str(decode("decimal(10,2)", "1.2345")) == "1.2345"


@st.composite
def scales_and_decimals(draw: st.DrawFn) -> tuple[int, Decimal]:
    scale = draw(st.integers(0, 30))
    return scale, draw(st.decimals(places=scale, allow_nan=False, allow_infinity=False))


@given(scales_and_decimals())
def test_any_decimal_comes_back_to_the_digit(case: tuple[int, Decimal]) -> None:
    scale, value = case
    found = read(f"decimal(65,{scale})", f"{value:f}".rstrip("0").rstrip(".") if scale else f"{value:f}")
    assert found == value
    assert found.as_tuple().exponent == -scale


@given(st.timedeltas(timedelta(hours=-838), timedelta(hours=838)))
def test_any_time_comes_back_to_the_microsecond(value: timedelta) -> None:
    micros = abs(value) // timedelta(microseconds=1)
    seconds, fraction = divmod(micros, 1_000_000)
    sign = "-" if value < timedelta() else ""
    text = f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"
    assert read("time(6)", text) == value


@given(st.floats(width=32, allow_nan=False))
def test_any_float_comes_back_exactly(value: float) -> None:
    if math.isinf(value):
        return
    # Java prints the fewest digits that tell the float from its neighbours; nine always do.
    assert read("float", f"{value:.9g}") == value


@given(st.binary(max_size=40))
def test_any_bytes_come_back(value: bytes) -> None:
    assert read("blob", value.decode("latin-1")) == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bigint(20) unsigned", MySQLType("bigint", (20,), (), unsigned=True)),
        ("decimal(10, 2)", MySQLType("decimal", (10, 2))),
        ("int(4) zerofill", MySQLType("int", (4,), (), unsigned=True)),
        ("VARCHAR(20) CHARACTER SET latin1", MySQLType("varchar", (20,))),
        ("enum('a','it''s','x,l',')')", MySQLType("enum", (), ("a", "it's", "x,l", ")"))),
        ("set()", MySQLType("set")),
        ("???", MySQLType("???")),
    ],
)
def test_a_type_text_is_taken_apart(text: str, expected: MySQLType) -> None:
    assert read_type(text) == expected
