"""Values of both sides in one form: what is equal, and what is not."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from pyspark.sql import types as spark
from sqlalchemy.dialects import mysql, postgresql

from handlers.mysql.values import single
from worker.verifying.forms import form_of

NTZ, TZ = spark.TimestampNTZType(), spark.TimestampType()
TEXT = spark.StringType()
SET = mysql.SET("a", "c", "b")
MOMENT = datetime(2026, 2, 3, 4, 5, 6, 7)
EAST = timezone(timedelta(hours=2))
WIDE = f"-{'9' * 28}.123456789"

EQUAL: list[tuple[Any, Any, Any, Any]] = [
    # source's type, its driver's value, Spark's type, its value
    (sa.Integer(), 5, spark.IntegerType(), 5),
    (mysql.TINYINT(display_width=1), 1, spark.ByteType(), 1),
    (sa.Boolean(), True, spark.BooleanType(), True),
    (sa.Boolean(), True, spark.ByteType(), 1),
    (mysql.BIT(9), b"\x01\x02", spark.LongType(), 258),
    (mysql.BIT(64), b"\xff" * 8, spark.DecimalType(20, 0), Decimal(2**64 - 1)),
    (mysql.YEAR(), 2155, spark.ShortType(), 2155),
    (sa.Numeric(10, 2), Decimal("9061.00"), spark.DecimalType(12, 4), Decimal("9061.0000")),
    (sa.Numeric(20, 0), Decimal("1E+2"), spark.DecimalType(20, 0), Decimal(100)),
    (sa.Numeric(38, 10), Decimal(f"{WIDE}0"), spark.DecimalType(38, 10), Decimal(WIDE)),
    (sa.Numeric(65, 30), Decimal("1." + "1" * 30), TEXT, "1." + "1" * 30),
    (sa.Numeric(10, 2), 12.5, spark.DecimalType(10, 2), Decimal("12.50")),  # SQLite's
    (mysql.FLOAT(), 0.10000000149011612, spark.FloatType(), 0.1),
    (mysql.FLOAT(), 0.10000000149011612, spark.DoubleType(), 0.1),
    (sa.REAL(), 0.1, spark.FloatType(), 0.10000000149011612),
    (sa.Double(), 0.1, spark.DoubleType(), 0.1),
    (sa.Double(), -0.0, spark.DoubleType(), 0.0),
    (sa.Date(), date(2024, 2, 29), spark.DateType(), date(2024, 2, 29)),
    (mysql.DATE(), "2024-02-31", spark.DateType(), None),
    (mysql.DATETIME(), "0000-00-00 00:00:00", NTZ, None),
    (mysql.DATETIME(fsp=6), MOMENT, NTZ, MOMENT),
    (sa.DateTime(), "2026-02-03 04:05:06.000007", NTZ, MOMENT),
    (mysql.TIMESTAMP(fsp=6), MOMENT, TZ, MOMENT),
    (sa.DateTime(timezone=True), MOMENT.replace(tzinfo=EAST), TZ, MOMENT - timedelta(hours=2)),
    (sa.DateTime(timezone=True), "2026-02-03 04:05:06.000007+00", TZ, MOMENT),
    (mysql.DATETIME(), datetime(2026, 2, 3), TEXT, "2026-02-03T00:00:00"),
    (mysql.TIMESTAMP(), datetime(2026, 2, 3), TEXT, "2026-02-03 00:00:00+00:00"),
    (mysql.TIME(fsp=3), timedelta(hours=-838, minutes=-59, seconds=-59), TEXT, "-838:59:59.000"),
    (sa.Time(), time(1, 2, 3, 4000), TEXT, "01:02:03.004"),
    (sa.LargeBinary(), memoryview(b"\x00\xff"), spark.BinaryType(), bytearray(b"\x00\xff")),
    (sa.LargeBinary(), b"\x00\xff", TEXT, "AP8="),
    (sa.JSON(), '{"b": [1.0, null], "a": "ü"}', TEXT, '{"a":"ü","b":[1,null]}'),
    (SET, "a,b", spark.ArrayType(TEXT), ["b", "a"]),
    (SET, "", spark.ArrayType(TEXT), []),
    (SET, "a,b", TEXT, "a,b"),
    (mysql.ENUM("x", "y"), "y", TEXT, "y"),
    (postgresql.ARRAY(sa.Integer()), [1, None], TEXT, "[1,null]"),
    (postgresql.BIT(8), "00000101", spark.LongType(), 5),
    (postgresql.BIT(70), "01" * 35, spark.BinaryType(), int("01" * 35, 2).to_bytes(9, "little")),
    (postgresql.ARRAY(sa.Boolean()), "{t,NULL}", TEXT, "[true,null]"),
    (postgresql.ARRAY(sa.LargeBinary()), '{"\\\\x00ff"}', TEXT, '[{"base64":"AP8="}]'),
    (postgresql.HSTORE(), '"b"=>NULL, "a"=>"x\\"y"', TEXT, '{"a":"x\\"y","b":null}'),
    (postgresql.INTERVAL(), "1 mon -2 days 00:00:01.5", TEXT, "682:30:01.500000"),
    (postgresql.INTERVAL(), "1 year", TEXT, "P1Y0M0DT0H0M0S"),
    (postgresql.TIME(timezone=True), "01:00:00+02", TEXT, "23:00:00"),
    (sa.DateTime(timezone=True), "infinity", TZ, None),
    (sa.Uuid(), uuid.UUID(int=7), TEXT, "00000000-0000-0000-0000-000000000007"),
    (sa.CHAR(5), "ab   ", TEXT, "ab"),
    (sa.Integer(), 7, TEXT, "7"),
    (sa.Numeric(10, 2), Decimal("7.00"), spark.LongType(), 7),
    (sa.Numeric(10, 2), Decimal("0.10"), spark.DoubleType(), 0.1),
    (sa.Double(), 0.1, spark.FloatType(), single(0.1)),
    (sa.Double(), float("inf"), spark.FloatType(), float("inf")),
    (sa.DateTime(), datetime(2026, 2, 3), spark.DateType(), date(2026, 2, 3)),
    (sa.JSON(), "[1e400]", TEXT, "[1e400]"),
    (sa.String(), "字 😀", TEXT, "字 😀"),
]  # fmt: skip

DIFFERENT: list[tuple[Any, Any, Any, Any]] = [
    (sa.Integer(), 5, spark.IntegerType(), 6),
    (sa.Numeric(10, 2), Decimal("0.10"), spark.DecimalType(10, 2), Decimal("0.01")),
    (sa.Numeric(38, 0), Decimal("9" * 38), spark.DecimalType(38, 0), Decimal("9" * 37 + "8")),
    (sa.Double(), 0.1, spark.DoubleType(), 0.10000000149011612),
    (mysql.DATETIME(fsp=6), MOMENT, NTZ, MOMENT.replace(microsecond=0)),
    (mysql.DATETIME(), datetime(2026, 2, 3), NTZ, None),
    (mysql.TIME(), timedelta(seconds=1), TEXT, "00:00:02"),
    (sa.String(), "a", TEXT, "a "),
    (sa.String(), "", TEXT, None),
    (sa.String(), "1.0", TEXT, "1"),
    (sa.LargeBinary(), b"a", spark.BinaryType(), b"a\x00"),
    (sa.JSON(), "[1,2]", TEXT, "[2,1]"),
    (sa.JSON(), "null", TEXT, None),
    (SET, "a", spark.ArrayType(TEXT), ["b"]),
    (sa.DateTime(timezone=True), MOMENT.replace(tzinfo=UTC), TZ, MOMENT + timedelta(hours=2)),
    (postgresql.BIT(8), "00000101", spark.LongType(), 101),
    (postgresql.INTERVAL(), "1 mon", TEXT, "720:00:00"),
    (postgresql.ARRAY(sa.Text()), '{"NULL"}', TEXT, "[null]"),
    # What the replica's column cannot hold is not the value that it holds.
    (sa.Numeric(10, 2), Decimal("1.90"), spark.LongType(), 1),
    (sa.Numeric(10, 2), Decimal("-0.99"), spark.LongType(), 0),
    (sa.Double(), 1.5, spark.IntegerType(), 1),
    (mysql.TINYINT(display_width=1), 2, spark.BooleanType(), True),
    (sa.DateTime(), datetime(2026, 1, 1, 23, 59, 59), spark.DateType(), date(2026, 1, 1)),
    (sa.Double(), 0.1234567890123, spark.FloatType(), single(0.1234567890123)),
    (sa.Numeric(30, 20), Decimal("0.12345678901234567890"), spark.DoubleType(), 0.12345678901234568),
    (sa.BigInteger(), 2**53 + 1, spark.DoubleType(), float(2**53)),
    (sa.JSON(), '{"a":1,"a":2}', TEXT, '{"a":2}'),
    (sa.JSON(), "1e400", TEXT, "2e400"),
    (sa.JSON(), "[1e-400]", TEXT, "[0.0]"),
    (sa.DateTime(timezone=True), "infinity", TEXT, "-infinity"),
    (mysql.DATETIME(), "0000-00-00 00:00:00", TEXT, "0001-00-00 00:00:00"),
]


def forms(source: Any, value: Any, kept: Any, other: Any) -> tuple[Any, Any]:
    form = form_of(source, kept)
    return (
        None if value is None else form.source(value),
        None if other is None else form.spark(other),
    )


@pytest.mark.parametrize("case", EQUAL, ids=lambda case: f"{case[0]!r} {case[2].simpleString()}")
def test_the_same_value_has_the_same_form(case: Any) -> None:
    source, replica = forms(*case)
    assert repr(source) == repr(replica)


@pytest.mark.parametrize("case", DIFFERENT, ids=lambda case: f"{case[0]!r} {case[2].simpleString()}")
def test_another_value_has_another_form(case: Any) -> None:
    source, replica = forms(*case)
    assert repr(source) != repr(replica)


def test_a_value_that_is_none_of_its_type_is_refused() -> None:
    with pytest.raises(ValueError, match="never"):
        form_of(sa.DateTime(), NTZ).source("never")
    with pytest.raises(ValueError, match="microsecond"):
        form_of(sa.DateTime(), NTZ).source("2026-02-03 04:05:06.0000071")
