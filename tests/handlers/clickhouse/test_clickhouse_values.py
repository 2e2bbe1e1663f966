"""Values: kept as the source has them, or rejected; in ClickHouse's own engine."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from clickhouse_lab import TYPES, handler
from servers.clickhouse_server import ClickHouseServer

from handlers import Rejected
from handlers.clickhouse import ClickHouseHandler
from handlers.testing import make_batch, opened

_TIME = "DateTime64(6, 'UTC')"
_DIGITS = "1234567890" * 7 + "123456"

KEPT: list[tuple[str | None, Any, str, str]] = [
    ("tinyint", -128, "Int8", "-128"),
    ("tinyint unsigned", 255, "UInt8", "255"),
    ("mediumint", -8_388_608, "Int32", "-8388608"),
    ("bigint", -(1 << 63), "Int64", str(-(1 << 63))),
    ("bigint unsigned", (1 << 64) - 1, "UInt64", str((1 << 64) - 1)),
    ("bit(64)", (1 << 64) - 1, "UInt64", str((1 << 64) - 1)),
    ("year", 2155, "UInt16", "2155"),
    ("decimal(5,2)", Decimal("-999.90"), "Decimal(5, 2)", "-999.90"),
    ("decimal(76,0)", Decimal(_DIGITS), "Decimal(76, 0)", _DIGITS),
    (
        "decimal(76,70)",
        Decimal(f"{_DIGITS[:6]}.{_DIGITS[6:]}"),
        "Decimal(76, 70)",
        f"{_DIGITS[:6]}.{_DIGITS[6:]}",
    ),
    ("decimal(77,0)", Decimal("9" * 77), "String", "9" * 77),
    ("numeric", Decimal("1E+2"), "String", "100"),
    ("float", 1.1, "Float64", "1.1"),
    ("double", float("-inf"), "Float64", "-inf"),
    ("boolean", False, "Bool", "false"),
    ("date", date(1900, 1, 1), "Date32", "1900-01-01"),
    ("date", date(2299, 12, 31), "Date32", "2299-12-31"),
    ("datetime(6)", datetime(1900, 1, 1, 0, 0, 0, 1), _TIME, "1900-01-01 00:00:00.000001"),
    (
        "timestamp",
        datetime(2299, 12, 31, 23, tzinfo=UTC),
        "DateTime64(6, 'UTC')",
        "2299-12-31 23:00:00.000000",
    ),
    ("uuid", UUID(int=1 << 120 | 5), "UUID", str(UUID(int=1 << 120 | 5))),
    ("varchar(9)", "it's \\ `ö` \U0001f40b\0", "String", "it's \\ `ö` \U0001f40b\0"),
    ("text", "x" * 300, "String", "x" * 300),
    ("set('a','b')", ("a", "b"), "String", "a,b"),
    ("set('a','b')", (), "String", ""),
    ("time", timedelta(hours=-838, microseconds=5), "String", "-837:59:59.999995"),
    ("json", '{"a": [1]}', "String", '{"a": [1]}'),
    (None, 5, "Int64", "5"),
    (None, 1 << 64, "String", str(1 << 64)),
    (None, {"a": [1, None]}, "String", '{"a":[1,null]}'),
]


def test_values_are_kept_as_the_source_has_them(clickhouse: ClickHouseServer) -> None:
    database = clickhouse.new_name()
    row = {f"c{at}": value for at, (_, value, _, _) in enumerate(KEPT)}
    types = {f"c{at}": text for at, (text, *_) in enumerate(KEPT) if text}
    with opened(ClickHouseHandler(**clickhouse.options)) as it:
        changes = [{"id": 1, **row}, {"id": 2, **dict.fromkeys(row)}]
        it.handle(make_batch(f"{database}.t", changes, key="id", types={"id": "int", **types}))
    for at, (_, _, kind, text) in enumerate(KEPT):
        shown = f"SELECT toTypeName(c{at}), toString(c{at}) FROM {database}.t FINAL ORDER BY id"
        settings = "SETTINGS output_format_decimal_trailing_zeros = 1"
        if kind.startswith("Decimal"):
            shown = f"SELECT toTypeName(c{at}), c{at} FROM {database}.t FINAL ORDER BY id"
        found = clickhouse.query(f"{shown} {settings} FORMAT TSVRaw")
        assert found == f"Nullable({kind})\t{text}\nNullable({kind})\t\\N\n", KEPT[at]


def test_bytes_are_kept_as_they_are(clickhouse: ClickHouseServer) -> None:
    database, data = clickhouse.new_name(), bytes(range(256))
    with opened(ClickHouseHandler(**clickhouse.options)) as it:
        it.handle(
            make_batch(
                f"{database}.t", [{"id": data, "data": data}], key="id", types={"id": "varbinary(256)"}
            )
        )
    found = clickhouse.query(f"SELECT hex(id), hex(data) FROM {database}.t FINAL FORMAT TSV")
    assert found == f"{data.hex().upper()}\t{data.hex().upper()}\n"


@pytest.mark.parametrize(
    ("type_text", "fits", "wrong"),
    [
        ("tinyint unsigned", 1, 300),
        ("int", 1, 3_000_000_000),
        ("int", 1, "1"),
        ("int", 1, 1.5),
        ("decimal(5,2)", Decimal(1), Decimal("1.678")),
        ("decimal(5,2)", Decimal(1), Decimal("1000")),
        ("decimal(5,2)", Decimal(1), Decimal("NaN")),
        ("decimal(5,2)", Decimal(1), 1.5),
        ("double", 1.0, (1 << 60) + 1),
        ("boolean", True, 2),
        ("date", date(2000, 1, 1), date(1899, 12, 31)),
        ("date", date(2000, 1, 1), datetime(2000, 1, 1, 5)),
        ("date", date(2000, 1, 1), "0000-00-00"),
        ("datetime(6)", datetime(2000, 1, 1), datetime(2300, 1, 1)),
        ("datetime(6)", datetime(2000, 1, 1), "0000-00-00 00:00:00"),
        ("uuid", UUID(int=1), "1"),
        ("text", "a", "\ud800"),
    ],
)
def test_what_a_column_cannot_hold_is_rejected_alone(
    clickhouse: ClickHouseServer, type_text: str, fits: Any, wrong: Any
) -> None:
    database = clickhouse.new_name()
    rows = [{"id": number, "value": wrong if number == 2 else fits} for number in range(4)]
    with opened(ClickHouseHandler(**clickhouse.options)) as it:
        types = {"id": "int", "value": type_text}
        whole = make_batch(f"{database}.t", rows, key="id", types=types)
        with pytest.raises(Rejected, match=r"t\[0\] offset 2.*value") as found:
            it.handle(whole)
        assert found.value.at == 2
    assert clickhouse.rows(f"{database}.t") == []


def test_a_column_of_whole_numbers_holds_whole_decimals(clickhouse: ClickHouseServer, database: str) -> None:
    """A numeric(20,0) of PostgreSQL in a table that was made by hand."""
    with handler(clickhouse) as it:
        it.handle(make_batch(f"{database}.t", [{"id": 1, "n": 1}], key="id", types={"id": "int", "n": "int"}))
        for wrong in ("1.5", "NaN", "1e30", "1e9999"):
            with pytest.raises(Rejected, match="column n"):
                it.handle(make_batch(f"{database}.t", [{"id": 2, "n": Decimal(wrong)}], key="id", offset=1))
        rows = [{"id": Decimal(1), "n": Decimal("7.00")}, {"id": Decimal("2.0"), "n": Decimal("2e2")}]
        it.handle(make_batch(f"{database}.t", rows, key="id", offset=5))
    assert clickhouse.rows(f"{database}.t") == [{"id": 1, "n": 7}, {"id": 2, "n": 200}]


def test_a_row_that_the_server_refuses_is_found_by_halves(clickhouse: ClickHouseServer) -> None:
    database = clickhouse.new_name()
    types = {"id": "int", "value": "int"}
    with opened(ClickHouseHandler(**clickhouse.options)) as it:
        it.handle(make_batch(f"{database}.t", [{"id": 99, "value": 1}], key="id", types=types))
        clickhouse.query(f"ALTER TABLE {database}.t ADD CONSTRAINT small CHECK value < 10")
        rows = [{"id": number, "value": 10 if number == 5 else 1} for number in range(9)]
        with pytest.raises(Rejected, match="small") as found:
            it.handle(make_batch(f"{database}.t", rows, key="id", types=types, offset=1))
    assert found.value.at == 5


def test_a_new_column_that_is_null_at_first_gets_its_value(
    clickhouse: ClickHouseServer, database: str
) -> None:
    """Types that name some columns say nothing of the others: each row is looked at for those."""
    types = {"total": "decimal(12,2)"}
    rows = [{"id": 1, "total": None, "note": None}, {"id": 2, "total": None, "note": "paid twice"}]
    with handler(clickhouse) as it:
        it.handle(make_batch(f"{database}.t", rows, key="id", types=types, topic="cdc"))
    assert {row["id"]: row["note"] for row in clickhouse.rows(f"{database}.t")} == {1: None, 2: "paid twice"}


def test_columns_that_the_server_computes_are_left_to_it(clickhouse: ClickHouseServer, database: str) -> None:
    clickhouse.query(f"CREATE DATABASE {database}")
    clickhouse.query(
        f"CREATE TABLE {database}.t (id Int32, name Nullable(String), twice Int32 MATERIALIZED id * 2, "
        f"upper String ALIAS upper(name), _version UInt64, _deleted UInt8, _partition String, "
        f"_source_time_ms Int64) ENGINE = ReplacingMergeTree(_version, _deleted) ORDER BY id"
    )
    row = {"id": 1, "name": "a", "twice": 7, "upper": "x"}
    with handler(clickhouse) as it:
        it.handle(make_batch(f"{database}.t", [row], key="id", types={**TYPES}, topic="cdc"))
        it.handle(make_batch(f"{database}.t", [{**row, "name": "b"}], key="id", topic="cdc", offset=5))
    answer = clickhouse.query(f"SELECT name, twice, upper FROM {database}.t FINAL FORMAT TSV")
    assert answer.split() == ["b", "2", "B"]
