"""Convert values of the source's driver and of Spark to a common form, in which equal values are equal.

The form depends on both types. Spark's type decides, but if Spark keeps text, the source's type does. A
source value that Spark's column cannot contain stays unchanged, and equals nothing there. The form is None, a
number (a Decimal has no trailing zeros), a str, bytes, a date or a datetime. Datetimes are naive, and in UTC
if the source's have a zone."""

from __future__ import annotations

import base64
import json
import math
import re
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, DecimalException
from typing import Any, NamedTuple

import sqlalchemy as sa
from pyspark.sql import types as sp
from sqlalchemy.dialects import mysql, postgresql

from handlers.mysql.values import single
from handlers.spark.rows.conversions import text
from worker.verifying import postgresql as pg


def bit(value: Any) -> int:
    """Read MySQL's BIT, which the driver returns as bytes."""
    is_bytes = isinstance(value, bytes | bytearray | memoryview)
    return int.from_bytes(bytes(value), "big") if is_bytes else int(value)


def whole(value: Any) -> int | float | Decimal:
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("bytes")
    if isinstance(value, float | Decimal) and value != int(value):
        return value
    return int(value)


def number(value: Any) -> Decimal:
    if isinstance(value, bytes | bytearray):
        return Decimal(int.from_bytes(value, "big"))
    found = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not found.is_finite():
        raise ValueError("not a number that Spark can store")
    # normalize() would round to the context's digits.
    digits = format(found, "f")
    digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return Decimal("0" if digits in ("-0", "") else digits)


def double(value: Any) -> float:
    return float(value) + 0.0  # removes the minus of zero


def exact_double(value: Any) -> float | Decimal:
    """Keep a number that a double would round."""
    rounded = double(value)
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    return exact if exact.is_finite() and Decimal(repr(rounded)) != exact else rounded


def short_double(value: Any) -> float | Decimal:
    """Keep a double that has more than the seven digits of a single."""
    exact = exact_double(value)
    rounded = single_precision(exact)
    return rounded if exact in (rounded, float(f"{rounded:.7g}")) else exact


def single_precision(value: Any) -> float:
    exact = float(value)
    return single(exact) + 0.0 if exact - exact == 0 else exact


def is_single(source: sa.types.TypeEngine[Any]) -> bool:
    if isinstance(source, mysql.FLOAT):
        return source.precision is None or source.scale is not None or source.precision <= 24
    return isinstance(source, sa.REAL) and not isinstance(source, mysql.REAL)


def json_number(digits: str) -> int | float | Decimal:
    found = float(digits)
    if abs(found) == math.inf or (not found and Decimal(digits)):
        return Decimal(digits)  # beyond a double's range
    return int(found) if found.is_integer() else found


Value = Any
Read = Callable[[Any], Value]

_INTEGERS = (sp.ByteType, sp.ShortType, sp.IntegerType, sp.LongType, sp.BooleanType)
_ZERO_DATE = re.compile(r"\d{4}-\d\d-\d\d([ T].*)?")
_BEYOND = re.compile(r"-?infinity|.* BC|\d{5,}-\d\d-\d\d([ T].*)?")
"""PostgreSQL's times that Python does not have. They are None in Spark."""
_FINER = re.compile(r"[.,]\d{6}0*[1-9]")
"""fromisoformat would drop these digits."""
_MICROSECOND = timedelta(microseconds=1)


class Form(NamedTuple):
    """The functions that convert a column's values. Neither receives None. They raise ValueError, TypeError
    or ArithmeticError for a value that is not of its type."""

    source: Read
    spark: Read


def form_of(source: sa.types.TypeEngine[Any], spark: sp.DataType) -> Form:  # noqa: PLR0911 (one for each type)
    if isinstance(source, postgresql.BIT):
        return Form(pg.bits, pg.bits)
    if isinstance(spark, _INTEGERS):
        read = bit if isinstance(source, mysql.BIT) else whole
        return Form(read, read)
    if isinstance(spark, sp.DecimalType):
        return Form(number, number)
    if isinstance(spark, sp.FloatType | sp.DoubleType) and is_single(source):
        return Form(single_precision, single_precision)
    if isinstance(spark, sp.FloatType):
        return Form(short_double, single_precision)
    if isinstance(spark, sp.DoubleType):
        return Form(exact_double, double)
    if isinstance(spark, sp.DateType):
        return Form(_date, _there(_date))
    if isinstance(spark, sp.TimestampType | sp.TimestampNTZType):
        return Form(_moment, _there(_moment))
    if isinstance(spark, sp.BinaryType):
        return Form(pg.point if isinstance(source, sa.types.NullType) else _bytes, _bytes)
    if isinstance(spark, sp.ArrayType) and isinstance(source, mysql.SET):
        return Form(_labels, _labels)
    if isinstance(spark, sp.ArrayType):
        return Form(_array_of(_plain) if isinstance(source, postgresql.ARRAY) else _json, _json)
    if isinstance(source, postgresql.ARRAY):
        items = _or_text(_item_read(source.item_type))
        return Form(_array_of(items), _array_of(items))
    return _of_text(source)


def _of_text(source: sa.types.TypeEngine[Any]) -> Form:
    """Spark keeps text, so the source's type decides which texts are equal. Existing text is never None."""
    if isinstance(source, sa.Time) and source.timezone:
        return Form(_or_text(pg.zoned_time), _or_text(pg.zoned_time))
    for types, read in _TEXTS.items():
        if isinstance(source, types):
            return Form(_or_text(read), _or_text(read, is_there=True))
    return Form(_plain, _plain)


def _date(value: Any) -> date | None:
    """Read a date. 0000-00-00, which no calendar has, is None in Spark and text in MySQL's driver."""
    moment = _moment(value)
    return moment if moment is None or moment.time() != time() else moment.date()


def _moment(value: Any) -> datetime | None:
    if isinstance(value, datetime):
        return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if _FINER.search(value):
        raise ValueError("digits below a microsecond")
    try:
        return _moment(datetime.fromisoformat(value))
    except ValueError:
        if _ZERO_DATE.fullmatch(value) or _BEYOND.fullmatch(value):
            return None
        raise


def _there(read: Read) -> Read:
    """A date of the replica is never None, even if Python does not have it."""

    def read_there(value: Any) -> Value:
        if (found := read(value)) is None:
            raise ValueError("Python does not have it")
        return found

    return read_there


def _time(value: Any) -> int:
    """Convert to microseconds."""
    if isinstance(value, timedelta):
        return value // _MICROSECOND
    if isinstance(value, time):
        if value.tzinfo is not None:
            raise ValueError("a time of day with a zone")
        value = value.isoformat()
    return pg.clock_time(value)


def _plain(value: Any) -> str:
    if isinstance(value, memoryview | bytearray):
        value = bytes(value)
    if isinstance(value, uuid.UUID):
        return str(value)
    return text(value)


def _bytes(value: Any) -> bytes:
    if isinstance(value, int):  # in SQLite any column may have it; bytes(5) is five zeros
        raise TypeError("a number")
    return value.encode() if isinstance(value, str) else bytes(value)


def _hstore(value: Any) -> str:
    """Read PostgreSQL's text, or JSON."""
    try:
        return _json(pg.hstore(value))
    except (ValueError, TypeError):
        return _json(value)


def _item_read(type_: sa.types.TypeEngine[Any]) -> Read:
    """Return the reader of an array's items, as PostgreSQL or JSON writes them."""
    if isinstance(type_, sa.Boolean):
        return pg.truth
    if isinstance(type_, sa.Float):
        return single_precision if is_single(type_) else double
    if isinstance(type_, sa.types._Binary):
        return _hex
    return _of_text(type_).source


def _hex(value: Any) -> str:
    """Read `\\x00ff`, or {"base64": "AP8="}."""
    found = base64.b64decode(value["base64"]) if isinstance(value, dict) else bytes.fromhex(value[2:])
    return found.hex()


def _array_of(item: Read) -> Read:
    def read(value: Any) -> str:
        if isinstance(value, str):
            is_json = value.startswith("[") and "={" not in value.partition("]")[2][:2]
            value = json.loads(value, parse_float=Decimal) if is_json else pg.array_items(value)
        return json.dumps(_each(item, value), ensure_ascii=False, separators=(",", ":"), default=str)

    return read


def _each(item: Read, values: Any) -> Any:
    if isinstance(values, list):
        return [_each(item, value) for value in values]
    return None if values is None else item(values)


def _labels(value: Any) -> str:
    """Sort a set's labels, which have no order."""
    found = value.split(",") if isinstance(value, str) else value
    return ",".join(sorted(label for label in found if label))


def _json(value: Any) -> str:
    """Normalize JSON: keys have no order, and 1.0 is 1."""
    if isinstance(value, str | bytes | bytearray):
        value = json.loads(value, parse_float=json_number, object_pairs_hook=_json_object)
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=text)


def _json_object(pairs: list[tuple[str, Any]]) -> Any:
    """Keep all pairs, in order, of an object with a duplicate key."""
    found = dict(pairs)
    return found if len(found) == len(pairs) else {"pairs": pairs}


def _or_text(read: Read, *, is_there: bool = False) -> Read:
    """Keep text that `read` rejects. `is_there`: the text exists, so None is not a valid result."""

    def read_or_text(value: Any) -> Value:
        try:
            found = read(value)
        except (ValueError, TypeError, DecimalException):
            return _plain(value)
        return _plain(value) if found is None and is_there else found

    return read_or_text


# The first match wins: a Float is a Numeric, an Enum is a String.
_TEXTS: Mapping[type[Any] | tuple[type[Any], ...], Read] = {
    sa.JSON: _json,
    mysql.SET: _labels,
    (sa.Time, mysql.TIME): _time,
    (sa.DateTime, mysql.TIMESTAMP): _moment,
    sa.Date: _date,
    (sa.Boolean, sa.Integer): whole,
    mysql.BIT: bit,
    sa.Float: double,
    sa.Numeric: number,
    sa.types._Binary: lambda value: (
        value if isinstance(value, str) else base64.b64encode(value).decode("ascii")
    ),
    postgresql.BIT: pg.bits,
    postgresql.INTERVAL: pg.interval,
    postgresql.HSTORE: _hstore,
    postgresql.MONEY: number,
    sa.CHAR: lambda value: _plain(value).rstrip(" "),  # padding is not part of the value
}
