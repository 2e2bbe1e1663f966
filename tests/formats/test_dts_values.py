"""Every class of DTS value in every kind of column: the table of docs/formats.md."""

from __future__ import annotations

import re
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from dts_records import Value, encode, record_fields, sent, value
from hypothesis import given
from hypothesis import strategies as st

from handlers import Change
from worker.formats.dts.format import DTS
from worker.formats.interface import UndecodableRecord


def read(number: int, item: Value, source: str = "MySQL") -> Any:
    """The value of a column of this type number, and its type text."""
    fields = {"fields": [{"name": "c", "dataTypeNumber": number}], "afterImages": [item], "tags": {}}
    changes: list[Change] = []
    DTS().decode(sent(**fields, source={"sourceType": source, "version": "8"}), changes)
    (change,) = changes
    assert change.after is not None
    return change.after["c"], (change.types or {}).get("c")


def integer(text: str) -> Value:
    return value("Integer", precision=8, value=text)


def text(data: bytes, charset: str = "utf8mb4") -> Value:
    return value("Character", charset=charset, value=data)


def decimal(text: str, scale: int = 0) -> Value:
    return value("Decimal", value=text, precision=20, scale=scale)


def double(number: float) -> Value:
    return value("Float", value=number, precision=0, scale=0)


def moment(seconds: int, micros: int = 0) -> Value:
    return value("Timestamp", timestamp=seconds, millis=micros)


def parts(*numbers: int | None) -> Value:
    names = ("year", "month", "day", "hour", "minute", "second", "millis")
    return value("DateTime", **dict(zip(names, numbers, strict=False)))


def clock(*numbers: int | None) -> Value:
    return parts(None, None, None, *numbers)


def zoned(zone: str, *numbers: int) -> Value:
    return value("TimestampWithTimeZone", value=parts(*numbers)[1], timezone=zone)  # type: ignore[index]


def typed(class_: str, type_: str, content: str | bytes) -> Value:
    return value(class_, type=type_, value=content)


LOWEST = "-" + "9" * 35 + "." + "9" * 30
NO_SRID, SRID = b"\0\0\0\0", b"\xe6\x10\0\0"
LITTLE_POINT = b"\x01\x01\x00\x00\x00" + struct.pack("<dd", 1, 2)
BIG_POINT = b"\x00\x00\x00\x00\x01" + struct.pack(">dd", 1, 2)

MYSQL = [
    (1, integer("-128"), -128, "tinyint"),
    (2, integer("32767"), 32767, "smallint"),
    (9, integer("-8388608"), -8388608, "mediumint"),
    (3, integer("4294967295"), 4294967295, "int"),
    (8, integer("18446744073709551615"), 18446744073709551615, "bigint"),
    (16, integer("5013343129984969332"), 5013343129984969332, "bit(64)"),
    (16, typed("BinaryObject", "bit", b"\x01\x02"), 258, "bit(64)"),
    (16, text(b"\xff\x00", "binary"), 65280, "bit(64)"),
    (0, decimal("11"), Decimal(11), "decimal(65,30)"),
    (246, decimal("11.00", 2), Decimal("11.00"), "decimal(65,30)"),
    (246, decimal("11", 2), Decimal("11.00"), "decimal(65,30)"),
    (246, decimal("1.23", 1), Decimal("1.23"), "decimal(65,30)"),
    (246, decimal(LOWEST, 30), Decimal(LOWEST), "decimal(65,30)"),
    (246, decimal("1E-10", 10), Decimal("0.0000000001"), "decimal(65,30)"),
    (246, decimal("1", -5), Decimal(1), "decimal(65,30)"),
    (246, decimal("1", 10**6), Decimal(1), "decimal(65,30)"),
    (4, double(0.1), 0.10000000149011612, "float"),
    (5, double(0.1), 0.1, "double"),
    (7, moment(1_763_000_000, 123456), datetime(2025, 11, 13, 2, 13, 20, 123456, UTC), "timestamp(6)"),
    (17, moment(1), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "timestamp(6)"),
    (7, moment(0), None, "timestamp(6)"),
    (7, parts(2025, 1, 2, 3, 4, 5), datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC), "timestamp(6)"),
    (10, parts(9999, 12, 31), date(9999, 12, 31), "date"),
    (14, parts(1000, 1, 1), date(1000, 1, 1), "date"),
    (11, clock(838, 59, 58, 999999), timedelta(0, 3598, 999999, hours=838), "time(6)"),
    (19, clock(-838, -59, -59), -timedelta(hours=838, minutes=59, seconds=59), "time(6)"),
    (11, clock(0, 0, 0, -1), timedelta(microseconds=-1), "time(6)"),
    (11, clock(0, 0, 0), timedelta(), "time(6)"),
    (12, parts(2025, 3, 4, 5, 6, 7, 8), datetime(2025, 3, 4, 5, 6, 7, 8), "datetime(6)"),
    (18, parts(9999, 12, 31, 23, 59, 59, 999999), datetime(9999, 12, 31, 23, 59, 59, 999999), "datetime(6)"),
    (12, parts(1000, 1, 1), datetime(1000, 1, 1), "datetime(6)"),
    (12, moment(1), datetime(1970, 1, 1, 0, 0, 1), "datetime(6)"),
    (13, parts(2155), 2155, "year"),
    (13, parts(0), 0, "year"),
    (13, integer("1901"), 1901, "year"),
    (253, text("日本 😀".encode()), "日本 😀", "varchar"),
    (15, text(b""), "", "varchar"),
    (254, text(b"abc"), "abc", "varchar"),
    (253, text(b"\xff\x00", "binary"), b"\xff\x00", "varbinary"),
    (254, text(b"\x00", "binary"), b"\x00", "varbinary"),
    (249, text(b"t"), "t", "tinytext"),
    (250, typed("BinaryObject", "blob", b"\xff"), b"\xff", "mediumblob"),
    (251, text(b"t"), "t", "longtext"),
    (252, text(b"t"), "t", "text"),
    (252, typed("BinaryObject", "blob", b""), b"", "blob"),
    (245, typed("TextObject", "json", '{"a": [1, 1e100]}'), '{"a":[1,1e100]}', "json"),
    (245, typed("TextObject", "json", "null"), "null", "json"),
    (247, typed("TextObject", "enum", "x,l"), "x,l", "enum"),
    (248, typed("TextObject", "set", "a,c"), ("a", "c"), "set"),
    (248, typed("TextObject", "set", ""), (), "set"),
    (255, typed("BinaryGeometry", "point", NO_SRID + LITTLE_POINT), NO_SRID + LITTLE_POINT, "geometry"),
    (255, typed("BinaryGeometry", "point", SRID + LITTLE_POINT), SRID + LITTLE_POINT, "geometry"),
    (255, typed("BinaryGeometry", "point", LITTLE_POINT), NO_SRID + LITTLE_POINT, "geometry"),
    (255, typed("BinaryGeometry", "point", BIG_POINT), NO_SRID + BIG_POINT, "geometry"),
    (255, typed("TextGeometry", "point", "POINT(1 2)"), "POINT(1 2)", "geometry"),
    (200, integer("7"), 7, None),
    (200, parts(2025, 1, 2), date(2025, 1, 2), None),
]  # fmt: skip
POSTGRESQL = [
    (16, typed("TextObject", "bool", "t"), True, "boolean"),
    (16, integer("0"), False, "boolean"),
    (20, integer("9223372036854775807"), 9223372036854775807, "bigint"),
    (700, double(0.1), 0.10000000149011612, "float"),
    (1043, text(b"x", "UTF-8"), "x", "varchar"),
    (1082, parts(1, 1, 1), date(1, 1, 1), "date"),
    (1114, parts(2025, 1, 2, 3, 4, 5, 6), datetime(2025, 1, 2, 3, 4, 5, 6), "datetime(6)"),
    (1184, moment(0), datetime(1970, 1, 1, tzinfo=UTC), "timestamp(6)"),
    (1184, zoned("+08:00", 1970, 1, 1, 8, 0, 0, 1), datetime(1970, 1, 1, 0, 0, 0, 1, UTC), "timestamp(6)"),
    (1184, zoned("GMT-3", 1970, 1, 1, 8, 0, 0), datetime(1970, 1, 1, 11, tzinfo=UTC), "timestamp(6)"),
    (1184, zoned("Asia/Shanghai", 2025, 1, 1, 8, 0, 0), datetime(2025, 1, 1, tzinfo=UTC), "timestamp(6)"),
    (1700, decimal("NaN"), Decimal("NaN"), "decimal(65,30)"),
    (2950, text(b"11111111-2222-3333-4444-555555555555"), "11111111-2222-3333-4444-555555555555", "uuid"),
    (3802, typed("BinaryObject", "jsonb", b'{"a": 1}'), '{"a":1}', "json"),
    (17, typed("BinaryObject", "bytea", b"\xff"), b"\xff", "longblob"),
    (1009, text(b"{a,b}"), "{a,b}", None),
]  # fmt: skip
CASES = [("MySQL", *case) for case in MYSQL] + [("PostgreSQL", *case) for case in POSTGRESQL]


@pytest.mark.parametrize(("source", "number", "item", "expected", "type_text"), CASES)
def test_a_value_is_of_its_columns_one_python_type(
    source: str, number: int, item: Value, expected: Any, type_text: str | None
) -> None:
    found, found_type = read(number, item, source)
    assert (type(found), repr(found)) == (type(expected), repr(expected))
    assert found_type == type_text


@pytest.mark.parametrize(
    ("number", "item"),
    [
        (10, parts(0, 0, 0)), (10, parts(2024, 0, 0)),
        (12, parts(0, 0, 0, 0, 0, 0)), (12, parts(2024, 2, 0, 10, 0, 0, 5)), (7, parts(0, 0, 0, 0, 0, 0)),
    ],
)  # fmt: skip
def test_a_zero_date_is_none(number: int, item: Value) -> None:
    assert read(number, item)[0] is None


@pytest.mark.parametrize(
    ("charset", "data", "expected"),
    [
        ("utf8", "é字".encode(), "é字"), ("utf8mb3", "é".encode(), "é"), ("UTF-8", "é".encode(), "é"),
        ("gbk", "中文".encode("gbk"), "中文"), ("gb2312", "中文".encode("gb2312"), "中文"),
        ("gb18030", "中文😀".encode("gb18030"), "中文😀"), ("big5", "中文".encode("big5"), "中文"),
        ("latin1", b"\x80 \xe9 \x81\xff", "€ é \x81ÿ"), ("latin2", b"\xa3", "Ł"), ("ascii", b"a", "a"),
        ("ucs2", "é字".encode("utf-16-be"), "é字"), ("utf16", "😀".encode("utf-16-be"), "😀"),
        ("utf16le", "😀".encode("utf-16-le"), "😀"), ("utf32", "😀".encode("utf-32-be"), "😀"),
        ("sjis", "日".encode("shift_jis"), "日"), ("ujis", "日".encode("euc_jp"), "日"),
        ("euckr", "한".encode("euc_kr"), "한"), ("cp1251", "Д".encode("cp1251"), "Д"),
        ("koi8r", "Д".encode("koi8_r"), "Д"), ("tis620", "ก".encode("tis_620"), "ก"),
    ],
)  # fmt: skip
def test_text_is_read_by_its_character_set(charset: str, data: bytes, expected: str) -> None:
    assert read(253, text(data, charset))[0] == expected


@pytest.mark.parametrize(
    ("number", "item", "said"),
    [
        (8, integer("seven"), "invalid literal"),
        (246, decimal("1,5"), "'1,5' is not a number"),
        (4, double(1e39), "beyond the range of FLOAT"),
        (10, parts(2024, 13, 1), "no date: 2024-13-1"),
        (10, parts(2024, 2, 31), "day is out of range for month"),
        (10, parts(2024), "without a year, month or day"),
        (12, parts(2024, 1, 1, 25, 0, 0), "hour must be in 0..23"),
        (12, parts(0, 0, 0, 0, 61, 0), "minute must be in 0..59"),
        (7, moment(10**12), "date value out of range"),
        (253, text(b"\xff", "utf8mb4"), "'utf-8' codec can't decode byte 0xff"),
        (253, text(b"x", "dec8"), "text in an unknown character set, 'dec8'"),
        (1184, zoned("Mars/Base", 2024, 1, 1), "an unknown time zone, 'Mars/Base'"),
    ],
)
def test_a_value_that_is_none_of_its_type_is_refused_by_name(number: int, item: Value, said: str) -> None:
    with pytest.raises(UndecodableRecord, match=f"column 'c' in `afterImages`: .*{re.escape(said)}"):
        read(number, item)


def test_what_is_neither_true_nor_false_is_refused() -> None:
    with pytest.raises(UndecodableRecord, match="'maybe' is neither true nor false"):
        read(16, typed("TextObject", "bool", "maybe"), "PostgreSQL")


def test_a_value_of_no_class_is_refused() -> None:
    good = encode(record_fields(afterImages=[integer("7"), None]), before_born_timestamp=True)
    with pytest.raises(
        UndecodableRecord, match=r"column 'note' in `afterImages`: a value of an unknown class \(byte 0x1a"
    ):
        DTS().decode(sent(good[:-2] + b"\x1a\0"), [])


@given(st.datetimes(datetime(1900, 1, 1), datetime(9999, 12, 31)), st.booleans())
def test_any_datetime_comes_back_to_the_microsecond(when: datetime, has_fraction: bool) -> None:
    when = when if has_fraction else when.replace(microsecond=0)
    fraction = [when.microsecond] if has_fraction else []
    item = parts(when.year, when.month, when.day, when.hour, when.minute, when.second, *fraction)
    assert read(12, item)[0] == when
    assert read(10, parts(when.year, when.month, when.day))[0] == when.date()


@given(st.timedeltas(timedelta(hours=-838), timedelta(hours=838)))
def test_any_time_comes_back_to_the_microsecond(length: timedelta) -> None:
    micros = abs(length) // timedelta(microseconds=1)
    seconds, fraction = divmod(micros, 1_000_000)
    sign = -1 if length < timedelta() else 1
    numbers = (seconds // 3600, seconds // 60 % 60, seconds % 60, fraction)
    assert read(11, clock(*(sign * number for number in numbers)))[0] == length


@given(st.integers(-(2**70), 2**70))
def test_any_integer_comes_back(number: int) -> None:
    assert read(8, integer(str(number)))[0] == number


@given(st.decimals(allow_nan=False, allow_infinity=False, places=10))
def test_any_decimal_comes_back_to_the_digit(number: Decimal) -> None:
    found, _ = read(246, decimal(f"{number:f}", 10))
    assert f"{found:f}" == f"{number:f}"
