"""What `verify --repair` writes of a value: what a worker would write, or nothing."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    TimestampNTZType,
    TimestampType,
)
from sqlalchemy.dialects import mysql, postgresql

from worker.verifying.forms import form_of
from worker.verifying.written import Unwritable, written

LABELS = ArrayType(StringType())
LONG = "12345678901234567890123456789012345678"
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 6)


def write(value: Any, source: sa.types.TypeEngine[Any], kept: DataType) -> Any:
    return written(value, source, form_of(source, kept), kept)


@pytest.mark.parametrize(
    ("value", "source", "kept", "expected"),
    [
        (Decimal(LONG), sa.Numeric(38, 0), DecimalType(38, 0), Decimal(LONG)),
        (Decimal("0.0000"), sa.Numeric(4, 4), DecimalType(4, 4), Decimal("0.0000")),
        (Decimal("99.5000"), sa.Numeric(8, 4), DecimalType(3, 1), Decimal("99.5")),
        (Decimal("0E-30"), mysql.DECIMAL(65, 30), StringType(), f"0.{'0' * 30}"),
        (b"\x01\x01", mysql.BIT(9), LongType(), 257),
        (1, mysql.TINYINT(), BooleanType(), True),
        (True, postgresql.BOOLEAN(), BooleanType(), True),
        (b"\0\xff", sa.LargeBinary(), BinaryType(), bytearray(b"\0\xff")),
        (b"\0\xff", sa.LargeBinary(), StringType(), "AP8="),
        (MOMENT, sa.DateTime(), TimestampNTZType(), MOMENT),
        (MOMENT, sa.DateTime(), TimestampType(), MOMENT.replace(tzinfo=UTC)),
        (MOMENT, sa.DateTime(), StringType(), "2026-01-02T03:04:05.000006"),
        ("0000-00-00", mysql.DATE(), DateType(), None),
        (timedelta(hours=-838, seconds=-59.5), mysql.TIME(fsp=1), StringType(), "-838:00:59.5"),
        ("c,b", mysql.SET("b", "a", "c"), LABELS, ["c", "b"]),
        ("", mysql.SET("b", "a", "c"), LABELS, []),
        ("{1,NULL}", postgresql.ARRAY(sa.Integer()), StringType(), "[1,null]"),
        ("{{1.50},{2}}", postgresql.ARRAY(sa.Numeric()), StringType(), '[["1.5"],["2"]]'),
        ("{infinity}", postgresql.ARRAY(sa.DateTime()), StringType(), "[null]"),
        ("", postgresql.BIT(100, varying=True), BinaryType(), bytearray()),
        (math.inf, sa.Double(), DoubleType(), math.inf),
    ],
)
def test_a_value_is_written_as_a_worker_does(
    value: Any, source: sa.types.TypeEngine[Any], kept: DataType, expected: Any
) -> None:
    found = write(value, source, kept)
    assert (found, type(found)) == (expected, type(expected))


def test_what_is_no_number_stays_so() -> None:
    assert math.isnan(write(math.nan, sa.Double(), DoubleType()))


@pytest.mark.parametrize(
    ("value", "source", "kept"),
    [
        (300, sa.Integer(), ByteType()),
        (1.5, sa.Integer(), LongType()),
        (Decimal("1.5"), sa.Numeric(), LongType()),
        (b"12", sa.Integer(), LongType()),
        (0.5, sa.Boolean(), BooleanType()),
        (5, sa.LargeBinary(), BinaryType()),
        ("2024-01-01 12:30:00", sa.Date(), DateType()),
        (datetime(2024, 1, 1, 12), sa.Date(), DateType()),
        ("2024-01-01 12:30:00.123456789", sa.DateTime(), TimestampNTZType()),
        (2**53 + 1, sa.BigInteger(), DoubleType()),
        (Decimal("123.45"), sa.Numeric(5, 2), DecimalType(4, 1)),
        (Decimal("1000"), sa.Numeric(5, 0), DecimalType(4, 1)),
        ("0101000020E6100000", sa.types.NullType(), BinaryType()),
        ("{1 day}", postgresql.ARRAY(postgresql.INTERVAL()), StringType()),
        ("[1,2]", sa.JSON(), LABELS),
    ],
)
def test_what_is_not_exact_is_refused(value: Any, source: sa.types.TypeEngine[Any], kept: DataType) -> None:
    with pytest.raises(Unwritable):
        write(value, source, kept)


def test_a_date_is_one_whether_it_has_a_midnight() -> None:
    day = date(2024, 1, 1)
    assert write("2024-01-01 00:00:00", sa.Date(), DateType()) == day
    assert write(datetime(2024, 1, 1), sa.Date(), DateType()) == day
