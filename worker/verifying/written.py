"""A value of the source's driver as Spark is to keep it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampType,
)
from sqlalchemy.dialects import postgresql

from handlers.mysql.values import single
from handlers.spark.rows.conversions import text
from worker.verifying.forms import Form
from worker.verifying.postgresql import array_items, hstore, truth

__all__ = ["Unwritable", "written"]


_BITS: Mapping[type[DataType], int] = {ByteType: 7, ShortType: 15, IntegerType: 31, LongType: 63}


class Unwritable(RuntimeError):
    """Nothing that the column can keep means this value."""


def written(value: Any, source: sa.types.TypeEngine[Any], form: Form, type_: DataType) -> Any:
    """What a column of this type is given, so that both sides have one form. Raises Unwritable."""
    if value is None:
        return None
    try:
        wanted = form.source(value)
    except (ValueError, TypeError, ArithmeticError):
        raise Unwritable(f"{_shown(value)} is no value of its type") from None
    if wanted is None:
        return None
    for found in _candidates(value, wanted, source, type_):
        try:
            if _fits(found, type_) and _equal(form.spark(found), wanted):
                return found
        except (ValueError, TypeError, ArithmeticError):
            continue
    raise Unwritable(f"{_shown(value)} has no place in a column of type {type_.simpleString()}")


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))  # noqa: PLR0124 (what is no number)


def _fits(value: Any, type_: DataType) -> bool:
    if isinstance(type_, DecimalType):
        return bool(round(value, type_.scale) == value and value.adjusted() < type_.precision - type_.scale)
    bits = _BITS.get(type(type_))
    return bits is None or bool(-(1 << bits) <= value < 1 << bits)


def _candidates(value: Any, wanted: Any, source: sa.types.TypeEngine[Any], type_: DataType) -> Iterator[Any]:
    match type_:
        case BooleanType():
            yield bool(wanted)
        case DecimalType():
            yield Decimal(wanted)
        case FloatType() | DoubleType():
            yield float(wanted)
        case TimestampType():
            yield wanted.replace(tzinfo=UTC)
        case BinaryType():
            yield bytearray(_bits(str(value)) if isinstance(wanted, int) else wanted)
        case ArrayType():
            yield from _items(value, wanted)
        case StringType():
            yield from _texts(value, wanted, source)
        case _:
            yield wanted


def _items(value: Any, wanted: Any) -> Iterator[list[Any]]:
    if isinstance(value, str):
        yield [label for label in value.split(",") if label]
    if isinstance(value, set | frozenset | list | tuple):
        yield list(value)
    if isinstance(wanted, str) and wanted.startswith("["):
        yield json.loads(wanted)


def _texts(value: Any, wanted: Any, source: sa.types.TypeEngine[Any]) -> Iterator[str]:
    if isinstance(value, timedelta):
        yield _time(value, getattr(source, "fsp", None) or 0)
    if isinstance(value, str):
        with suppress(ValueError, TypeError, KeyError, ArithmeticError):
            yield from _as_sent(value, wanted, source)
    if isinstance(value, bytes | bytearray | memoryview):
        yield base64.b64encode(value).decode("ascii")
        yield bytes(value).decode("utf-8", "replace")
    if isinstance(value, dict | list):
        yield json.dumps(value, ensure_ascii=False, default=str)
    yield str(value)
    if isinstance(wanted, str):
        yield wanted


def _as_sent(value: str, wanted: Any, source: sa.types.TypeEngine[Any]) -> Iterator[str]:
    """What Debezium's records make of PostgreSQL's own texts."""
    match source:
        case postgresql.ARRAY():
            yield text(_each(source.item_type, array_items(value)))
        case postgresql.HSTORE():
            yield text(hstore(value))
        case postgresql.INTERVAL():
            yield text(timedelta(microseconds=wanted))
        case sa.Time(timezone=True):
            yield text((datetime.min + timedelta(microseconds=wanted)).time())


def _each(item: sa.types.TypeEngine[Any], value: Any) -> Any:
    if isinstance(value, list):
        return [_each(item, one) for one in value]
    read = next((read for kind, read in _ITEMS.items() if isinstance(item, kind)), str)
    return None if value is None else read(value)


def _moment(value: str) -> datetime:
    found = datetime.fromisoformat(value)
    return found if found.tzinfo is None else found.astimezone(UTC)


# The first that fits: a Float is a Numeric.
_ITEMS: Mapping[type[Any], Callable[[str], Any]] = {
    sa.Boolean: lambda value: bool(truth(value)),
    sa.Integer: int,
    sa.REAL: lambda value: single(float(value)),
    sa.Float: float,
    sa.Numeric: lambda value: value if value == "NaN" else Decimal(value).normalize(),
    sa.DateTime: _moment,
    sa.types._Binary: lambda value: bytes.fromhex(value[2:]),
}


def _time(value: timedelta, digits: int) -> str:
    """As MySQL writes it, with so many digits of a second: -838:59:59.5 and 09:00:00."""
    seconds, micros = divmod(abs(value) // timedelta(microseconds=1), 1_000_000)
    sign = "-" if value < timedelta() else ""
    whole = f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{whole}.{micros:06}"[: len(whole) + 1 + digits] if digits else whole


def _bits(digits: str) -> bytes:
    """Of PostgreSQL's bit strings that are longer than a number, as Debezium sends them."""
    return int(digits, 2).to_bytes((len(digits) + 7) // 8, "little")


def _shown(value: Any) -> str:
    shown = str(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}..."
