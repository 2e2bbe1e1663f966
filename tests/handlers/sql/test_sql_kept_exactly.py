"""A column of a table made by hand holds a value as it came, or the row is rejected; and it finds its row."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest
from sql_lab import SqlLab, orders

from handlers import Rejected

MakeLab = Callable[[str], SqlLab]

LONGER_NAMES = {name: f"{name}('a\\\\b','c\\nd','\U0001f600')" for name in ("enum", "set")}
"""Types of a test by the names that it tells."""

KEPT: dict[str, list[tuple[str, Any]]] = {
    "mariadb": [
        ("float", 0.1),
        ("float", Decimal("0.1")),
        ("float", "0.1"),
        ("float", "3.4e38"),
        ("float(7,4)", 1.2346),
        ("decimal(30,2)", "12345678901234567890123456.12"),
        ("decimal(30,2)", 0.1),
        ("binary(4)", b"\1"),
        ("char(5)", "a"),
        ("char(5)", "a    "),
        ("varchar(3)", "ab "),
        ("tinytext", "a" * 250 + " " * 5),
        ("datetime(3)", "2025-01-01 00:00:00.123000"),
        ("date", "2025-01-01 00:00:00"),
        ("time", "-838:59:59.0"),
        ("enum('a','b')", "b"),
        ("set('a','b')", ("b", "a")),
        ("set('a','b')", "b,a"),
        ("set('a','b')", ""),
        ("enum", "a\\b"),
        ("enum", "c\nd"),
        ("enum", "\U0001f600"),
        ("set", "\U0001f600,a\\b"),
        ("year", 0),
        ("year", "2024"),
        ("double(7,2)", 1.24),
        ("bit(64)", "101"),
        ("bit(8)", Decimal("2.0")),
        ("double", Decimal("0.1")),
        ("double", "0.10000000000000001"),
        ("double", -(2**63)),
        ("date", "20250101"),
        ("date", 20250101),
        ("datetime", "20250101101112"),
    ],
    "postgres": [
        ("real", "0.1"),
        ("char(5)", "a    "),
        ("varchar(3)", "ab "),
        ("timestamp", "2025-01-01T00:00:00.1234560Z"),
        ("timestamptz", "2025-01-01T00:00:00+02:00"),
        ("timestamptz", "2025-01-01 00:00:00 Europe/Berlin"),
        ("timestamp", "2025-01-01 12:00:00 UTC"),
        ("timestamp", "20250101T120000.5Z"),
        ("timestamp", "Wed Jan 01 12:00:00 2025"),
        ("timestamp", "Wed Jan 01 2025 12:00:00 GMT+0000"),
        ("timestamptz", "20250101T120000+0300"),
        ("timestamptz", "2025-01-01 12:00:00 EST"),
        ("date", "2025-01-01T00:00:00"),
        ("date", "20250101T000000"),
        ("date", 20250101),
        ("time(3)", "10:00:00.123"),
        ("timetz", "10:00:00+02"),
        ("interval", "1 day -01:00:00.5"),
        ("interval", "01:00:00 ago"),
        ("interval", "01:00:00 -5 days"),
        ("numeric(5,2)[]", ["1.20"]),
        ("small_amount", "1.20"),
        ("small_time", "2025-01-01T00:00:00.123+02:00"),
        ("timestamp", "infinity"),
        ("interval day", "P1Y2M3DT0H0M0S"),
        ("interval day", "1 year 2 mons 3 days"),
        ("interval hour to minute", timedelta(minutes=90)),
        ("interval second(2)", "00:00:01.25"),
        ("days_alone", "P3D"),
        ("short_seconds", "PT1.2S"),
        ('"char"', "a"),
        ("name", "a" * 63),
        ("bpchar", "a"),
        ("numeric(5,-2)", 300),
        ("double precision", Decimal("0.1")),
        ("double precision", Decimal.from_float(0.1)),
        ("double precision", 2**60),
        ("double precision", Decimal("2.82879384806159008E17")),
        ("smaller_text", "abc"),
        ("small_amount[]", ["1.20"]),
    ],
    "sqlite": [
        ("bigint", str(2**63 - 1)),
        ("bigint", -(2**63)),
        ("decimal(10,2)", "no number"),
        ("decimal(10,2)", "NaN"),
        ("decimal(10,2)", Decimal("12345678901234.56")),
        ("decimal(10,2)", "1.10"),
        ("decimal(10,2)", 2**53 + 1),
        ("string", "7"),
        ("string", "0x7"),
        ("json", "5"),
        ("datetime", "2025-01-01 00:00:00"),
        ("real", "NaN"),
        ("real", 2**60),
    ],
    "duckdb": [
        ("double", 2**70),
        ("decimal(5,2)[]", ["1.20"]),
        ("timestamp", "2025-01-01 00:00:00.123456"),
        ("timestamp_ns", "2025-01-01 00:00:00.123456789"),
        ("timestamp_ns", datetime(2025, 1, 1, 0, 0, 0, 1)),
        ("time", "10:00:00"),
        ("time_ns", "10:00:00.123456789"),
        ("integer[][]", [[1, 2], [3]]),
        ("integer[2]", [1, 2]),
    ],
}

REFUSED: dict[str, list[tuple[str, Any]]] = {
    "mariadb": [
        ("char(5)", "a "),
        ("varchar(3)", "ab   "),
        ("tinytext", "a" * 250 + " " * 6),
        ("datetime(3)", "2025-01-01 00:00:00.1234"),
        ("datetime(6)", "2025-01-01 00:00:00.1234567"),
        ("datetime", "10:00:00"),
        ("date", "2025-01-01 10:00:00"),
        ("date", "2025-01-01T10:00:00"),
        ("date", "2025-01-01T10"),
        ("date", "20250101T101112"),
        ("datetime", "20250101T101112.5"),
        ("datetime(3)", "20250101101112.1234"),
        ("time", "10:00:00.5"),
        ("time", time(10, 0, 0, 1)),
        ("time", "2025-01-01 10:00:00"),
        ("enum('a','b')", "2"),
        ("enum('a','b')", 2),
        ("enum('a','b') COLLATE utf8mb4_general_ci", "A"),
        ("set('a','b')", "2"),
        ("enum", "A\\B"),
        ("year", 5),
        ("year", "24"),
        ("double(7,2)", 1.239),
        ("decimal(5,2)", "1_1"),
        ("date", 0),
        ("date", 128),
        ("date", "24-1-5"),
        ("date", "20250101101112"),
        ("datetime", Decimal("123.45")),
        ("datetime", "101112"),
        ("datetime", timedelta()),
        ("time", 1.5),
        ("time", "101"),
        ("time(6)", datetime(2025, 1, 1, 10)),
        ("bit(8)", 1.5),
        ("bit(8)", Decimal("1.505")),
        ("bit(8)", "1_0"),
        ("bit(64)", ("a", "b")),
        ("bit(64)", -1),
        ("double", Decimal("12345678901234567.89")),
        ("double", 2**53 + 1),
        ("float", "1_0"),
        ("int", "007"),
        ("int", " 7"),
        ("int", "1_000"),
    ],
    "sqlite": [
        ("bigint", str(2**63)),
        ("bigint", Decimal(2**63)),
        ("decimal(10,2)", "1234567890123456.12"),
        ("decimal(10,2)", Decimal("12345678901234567890.12")),
        ("decimal(10,2)", 2**63 + 1),
        ("string", "007"),
        ("uuid", "1e3"),
        ("json", "1.0"),
        ("datetime", "9223372036854775808"),
        ("real", Decimal("12345678901234567.89")),
        ("real", "1e400"),
        ("bigint", "007"),
    ],
    "postgres": [
        ("char(5)", "a "),
        ("varchar(3)", "ab   "),
        ("varchar(3)[]", ["ab   "]),
        ("timestamp", "2025-01-01 00:00:00.1234567"),
        ("timestamp(3)", "2025-01-01 00:00:00.1234"),
        ("timestamp(3)[]", [datetime(2025, 1, 1, 0, 0, 0, 1)]),
        ("timestamp", "2025-01-01T00:00:00+02:00"),
        ("timestamp", "2025-01-01 00:00:00 Europe/Berlin"),
        ("timestamp", "2025-01-01 12:00:00 EST"),
        ("timestamp", "2025-01-01 12:00:00 PM CET"),
        ("timestamp", "2025-01-01 12:00:00 +5"),
        ("timestamp", "Wed Jan 01 2025 12:00:00 GMT+0100"),
        ("timestamp", "20250101T120000+0300"),
        ("timestamp", "20250101 120000-05"),
        ("timestamp(3)", "20250101T120000.1234"),
        ("date", "20250101T120000"),
        ("date[]", ["20250101T120000"]),
        ("date", "2025-01-01 10:00:00"),
        ("time", "10:00:00 EST"),
        ("time", "10:00:00+02"),
        ("time", "10:00:00.1234567"),
        ("time(3)", time(10, 0, 0, 1)),
        ("time", "2025-01-01 10:00:00"),
        ("interval", "1.1234567 seconds"),
        ("interval(2)", "1.123 seconds"),
        ("numeric(5,2)[]", ["1.239"]),
        ("small_amount", "1.239"),
        ("small_time", "2025-01-01 00:00:00.1234+00"),
        ("money", Decimal("1.239")),
        ("numeric(5,-2)", 1),
        ('"char"', "ab"),
        ('"char"', "\u00e9"),
        ('"char"', 12),
        ("name", "a" * 64),
        ("name[]", ["a" * 64]),
        ("interval day", "1 day 02:00:00"),
        ("interval day", timedelta(days=1)),
        ("interval hour to minute", "P0Y0M0DT1H2M3S"),
        ("interval year to month", "40 days"),
        ("interval second(2)", "00:00:01.255"),
        ("days_alone", "P3DT1H"),
        ("short_seconds", "PT1.25S"),
        ("interval", 5),
        ("interval", "5"),
        ("bpchar", "a "),
        ("smaller_text", "ab   "),
        ("small_amount[]", ["1.239"]),
        ("small_amounts", [Decimal("1.239")]),
        ("date[]", [datetime(2025, 1, 1, 10)]),
        ("date", [datetime(2025, 1, 1, 10)]),
        ("timestamp(0)[]", "2025-01-01 00:00:00.7"),
        ("text[]", "{a,b}"),
        ("text[]", '["a","b"]'),
        ("date", "today"),
        ("timestamp", "now"),
        ("time", "2025-01-01"),
        ("date", "01/02/2025"),
        ("double precision", Decimal("12345678901234567.89")),
        ("double precision", 2**53 + 1),
        ("int", "007"),
    ],
    "duckdb": [
        ("decimal(5,2)[]", ["1.239"]),
        ("timestamp", "2025-01-01 00:00:00.1234567"),
        ("timestamp_ms", "2025-01-01 00:00:00.1234"),
        ("timestamp", "2025-01-01T00:00:00+02:00"),
        ("timestamp", "2025-01-01 00:00:00 Europe/Berlin"),
        ("timestamp_s", "2025-01-01 12:00:00 EST"),
        ("date", "2025-01-01 10:00:00"),
        ("time", "10:00:00+02"),
        ("time", date(2025, 1, 1)),
        ("time_ns", "2025-01-01 10:00:00"),
        ("timetz", "00:00:01.1234567"),
        ("float", 1e308),
        ("double", 2**53 + 1),
        ("integer[]", [1.5]),
        ("varchar[]", '["a"]'),
        ("decimal(5,2)", "1_1"),
        ("interval", 5),
    ],
}


def cases(found: dict[str, list[tuple[str, Any]]]) -> list[Any]:
    return [
        pytest.param(kind, type_, value, id=f"{kind} {type_} {value!r:.30}")
        for kind, some in found.items()
        for type_, value in some
    ]


def lab_of(make_sql: MakeLab, kind: str) -> SqlLab:
    lab = make_sql(kind)
    if kind == "postgres":
        lab.run("CREATE DOMAIN small_amount AS numeric(5,2)")
        lab.run("CREATE DOMAIN small_time AS timestamptz(3)")
        lab.run("CREATE DOMAIN small_text AS varchar(3)")
        lab.run("CREATE DOMAIN smaller_text AS small_text")
        lab.run("CREATE DOMAIN small_amounts AS numeric(5,2)[]")
        lab.run("CREATE DOMAIN days_alone AS interval day")
        lab.run("CREATE DOMAIN short_seconds AS interval second(1)")
    return lab


@pytest.mark.parametrize(("kind", "type_", "value"), cases(KEPT))
def test_a_row_without_a_key_is_found(make_sql: MakeLab, kind: str, type_: str, value: Any) -> None:
    lab = lab_of(make_sql, kind)
    lab.make("shop.orders", f"id int, v {LONGER_NAMES.get(type_, type_)}")
    with lab.handler() as handler:
        handler.handle(orders({"id": 1, "v": value}, key=None))
        handler.handle(
            orders({"before": {"id": 1, "v": value}, "after": {"id": 2, "v": value}}, key=None, offset=1)
        )
        assert [one["id"] for one in lab.rows(columns="id")] == [2]
        handler.handle(orders({"before": {"id": 2, "v": value}, "after": None}, key=None, offset=2))
    assert lab.rows() == []


def in_keys() -> list[Any]:
    """Of each server and type one in the quick run, and what compares in a way of its own as a key."""
    found, seen = [], set[Any]()
    for one in cases(KEPT):
        kind, type_, _ = one.values
        if type_ == "tinytext" or "]" in type_:
            continue
        is_quick = (kind, type_) not in seen or one.id in AS_KEYS
        seen.add((kind, type_))
        found.append(pytest.param(*one.values, id=one.id, marks=() if is_quick else pytest.mark.soak))
    return found


AS_KEYS = ("postgres date 20250101", "postgres double precision 1152921504606846976")


@pytest.mark.parametrize(("kind", "type_", "value"), in_keys())
def test_a_key_finds_its_row(make_sql: MakeLab, kind: str, type_: str, value: Any) -> None:
    lab = lab_of(make_sql, kind)
    lab.make("shop.orders", f"v {LONGER_NAMES.get(type_, type_)} PRIMARY KEY, n int, m int")
    with lab.handler() as handler:
        handler.handle(orders({"v": value, "n": 1, "m": 1}, key="v"))
        handler.handle(orders({"v": value, "n": 2, "m": 2}, key="v", offset=1))
        partial = {"before": None, "after": {"v": value, "n": 3}, "op": "update", "lacks": frozenset("m")}
        handler.handle(orders(partial, key="v", offset=2))
        assert [(one["n"], one["m"]) for one in lab.rows(columns="n, m")] == [(3, 2)]
        handler.handle(orders({"before": {"v": value}, "after": None}, key="v", offset=3))
    assert lab.rows() == []


@pytest.mark.parametrize(("kind", "type_", "value"), cases(REFUSED))
def test_a_value_that_would_be_changed_is_rejected(
    make_sql: MakeLab, kind: str, type_: str, value: Any
) -> None:
    lab = lab_of(make_sql, kind)
    lab.make("shop.orders", f"id int, v {LONGER_NAMES.get(type_, type_)}")
    with lab.handler() as handler, pytest.raises(Rejected, match="column v: "):
        handler.handle(orders({"id": 1, "v": value}, key=None))
    assert lab.rows() == []


@pytest.mark.parametrize("source_type", ["varchar(5)", "NVARCHAR(5)"])
@pytest.mark.parametrize("kind", ["mariadb", "postgres"])
def test_a_char_holds_no_text_that_ends_in_spaces(make_sql: MakeLab, kind: str, source_type: str) -> None:
    """A source's char(5) is sent with its padding; a varchar(5) of five characters looks the same."""
    lab = make_sql(kind)
    lab.make("shop.orders", "code char(5) PRIMARY KEY, n int")
    types = {"code": source_type, "n": "int"}
    with lab.handler() as handler, pytest.raises(Rejected, match="column code: ") as told:
        handler.handle(orders({"code": "a", "n": 1}, {"code": "a    ", "n": 2}, key="code", types=types))
    assert told.value.at == 1
    assert lab.rows() == []


def test_a_char_that_binlane_made_is_found_however_it_is_padded(make_sql: MakeLab) -> None:
    lab = make_sql("mariadb")
    types = {"code": "char(5)", "n": "int"}
    with lab.handler() as handler:
        rows = {"code": "a    ", "n": 1}, {"code": "b    ", "n": 1}
        handler.handle(orders(*rows, key="code", types=types))
        gone = {"before": {"code": "a    ", "n": 1}, "after": None}
        handler.handle(orders(gone, key="code", offset=2, types=types))
    assert lab.rows() == [{"code": "b", "n": 1}]


@pytest.mark.parametrize("source_type", ["char(5)", "NCHAR(5)", "char(5) character set latin1"])
@pytest.mark.parametrize("kind", ["mariadb", "postgres"])
def test_a_longer_char_takes_what_the_source_has_padded(
    make_sql: MakeLab, kind: str, source_type: str
) -> None:
    lab = make_sql(kind)
    lab.make("shop.orders", "code char(20) PRIMARY KEY, n int")
    types = {"code": source_type, "n": "int"}
    with lab.handler() as handler:
        handler.handle(orders({"code": "a    ", "n": 1}, {"code": "b    ", "n": 1}, key="code", types=types))
        gone = {"before": {"code": "a    ", "n": 1}, "after": None}
        handler.handle(orders(gone, key="code", offset=2, types=types))
    assert [one["code"].rstrip() for one in lab.rows()] == ["b"]


def test_a_char_of_sqlite_keeps_spaces(make_sql: MakeLab) -> None:
    lab = make_sql("sqlite")
    lab.make("shop.orders", "code char(5) PRIMARY KEY")
    with lab.handler() as handler:
        handler.handle(orders({"code": "a "}, key="code", types={"code": "varchar(5)"}))
        handler.handle(orders({"code": "a    "}, key="code", offset=1, types={"code": "char(5)"}))
    assert [one["code"] for one in lab.rows()] == ["a    ", "a "]


@pytest.mark.parametrize("kind", ["bpchar", "padded"])
def test_texts_that_differ_in_padding_are_no_one_key(make_sql: MakeLab, kind: str) -> None:
    """PostgreSQL's bpchar takes them for one, also within a domain."""
    lab = make_sql("postgres")
    lab.run("CREATE DOMAIN padded AS bpchar")
    lab.make("shop.orders", f"code {kind} PRIMARY KEY, n int")
    with lab.handler() as handler, pytest.raises(Rejected, match="column code: ") as told:
        handler.handle(orders({"code": "a", "n": 1}, {"code": "a ", "n": 2}, key="code"))
    assert told.value.at == 1


def test_a_number_in_sqlites_any_stays_a_text(make_sql: MakeLab) -> None:
    """In a STRICT table alone; elsewhere ANY is a name of no type."""
    lab = make_sql("sqlite")
    lab.run('CREATE TABLE "shop.orders" (id int PRIMARY KEY, v any) STRICT')
    with lab.handler() as handler:
        handler.handle(orders({"id": 1, "v": "007"}))
    assert lab.rows() == [{"id": 1, "v": "007"}]


def test_a_name_holds_a_value_as_a_text_does(make_sql: MakeLab) -> None:
    lab = make_sql("postgres")
    lab.make("shop.orders", "id name, v text")
    with lab.handler() as handler:
        for offset, value in enumerate((True, datetime(2025, 1, 1), ("a", "b"))):
            handler.handle(orders({"id": value, "v": value}, key=None, offset=offset))
    assert all(row["id"] == row["v"] for row in lab.rows())
