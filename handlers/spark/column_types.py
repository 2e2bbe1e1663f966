"""Source column types as Spark keeps them: a MySQL type text -> an Arrow type and what its values become.

docs/spark.md has the whole table. A type that is not known here becomes a string: never guessed, never lost.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from handlers.mysql.types import read_type

__all__ = ["STRING", "ColumnType", "column_type"]


class ColumnType(NamedTuple):
    """How one source column is kept."""

    arrow: pa.DataType
    convert: Callable[[Any], Any] | None = None
    """Applied to every value that is not None; None: Arrow takes the values as they are."""


def time_text(value: Any, digits: int) -> str:
    """A TIME as MySQL writes it. It runs from -838:59:59 to 838:59:59, which no time of day can hold."""
    if not isinstance(value, timedelta):
        return text(value)
    microseconds = value // timedelta(microseconds=1)
    sign = "-" if microseconds < 0 else ""
    seconds, microseconds = divmod(abs(microseconds), 1_000_000)
    fraction = f".{microseconds:06d}"[: digits + 1] if digits else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"


def text(value: Any) -> str:
    """Any value as text: bytes in base64, lists and objects as JSON, times in ISO 8601."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bool | dict | list | tuple):
        return msgspec.json.encode(value, enc_hook=text).decode("utf-8")
    return str(value)


STRING = ColumnType(pa.string(), text)
"""Also of columns whose type the source does not tell."""

_LONG_DECIMAL = ColumnType(pa.decimal128(20, 0), Decimal)  # bigint unsigned and bit(64) pass a long's range
_BINARY = ColumnType(pa.binary())

# Signed and unsigned; the next wider type holds what the unsigned one can.
_INTEGERS: Mapping[str, tuple[ColumnType, ColumnType]] = {
    **dict.fromkeys(("tinyint", "int1", "bool", "boolean"), (ColumnType(pa.int8()), ColumnType(pa.int16()))),
    **dict.fromkeys(("smallint", "int2"), (ColumnType(pa.int16()), ColumnType(pa.int32()))),
    **dict.fromkeys(("mediumint", "middleint", "int3"), (ColumnType(pa.int32()), ColumnType(pa.int32()))),
    **dict.fromkeys(("int", "integer", "int4"), (ColumnType(pa.int32()), ColumnType(pa.int64()))),
    **dict.fromkeys(("bigint", "int8"), (ColumnType(pa.int64()), _LONG_DECIMAL)),
}

_PLAIN: Mapping[str, ColumnType] = {
    "serial": _LONG_DECIMAL,
    "year": ColumnType(pa.int16()),
    **dict.fromkeys(("double", "double precision", "real", "float8"), ColumnType(pa.float64())),
    "date": ColumnType(pa.date32()),
    "datetime": ColumnType(pa.timestamp("us")),
    "timestamp": ColumnType(pa.timestamp("us", tz="UTC")),
    "set": ColumnType(pa.list_(pa.string())),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), _BINARY),
    **dict.fromkeys(("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring"), _BINARY),
    **dict.fromkeys(("multipolygon", "geometrycollection", "geomcollection", "vector"), _BINARY),
}


@lru_cache(maxsize=10_000)
def column_type(type_text: str) -> ColumnType:
    """The type of a column whose source type is written so: `decimal(10,2) unsigned`."""
    mysql_type = read_type(type_text)
    name, sizes = mysql_type.name, mysql_type.sizes
    if name in _INTEGERS:
        return _INTEGERS[name][mysql_type.unsigned]
    if name in _SIZED:
        return _SIZED[name](sizes)
    if name == "set" and not mysql_type.labels:
        return STRING  # without its labels a set stays the text it came as
    return _PLAIN.get(name, STRING)


def _decimal(sizes: tuple[int, ...]) -> ColumnType:
    """Spark's decimals have up to 38 digits, MySQL's up to 65: those keep all their digits as text."""
    precision = sizes[0] if sizes else 10
    scale = sizes[1] if len(sizes) > 1 else 0
    return STRING if precision > 38 else ColumnType(pa.decimal128(precision, scale))


def _float(sizes: tuple[int, ...]) -> ColumnType:
    # FLOAT(25) to FLOAT(53) are doubles; FLOAT(7,4) is not, its numbers are digits.
    return ColumnType(pa.float64() if len(sizes) == 1 and sizes[0] > 24 else pa.float32())


def _bit(sizes: tuple[int, ...]) -> ColumnType:
    return _LONG_DECIMAL if sizes[:1] == (64,) else ColumnType(pa.int64())


def _time(sizes: tuple[int, ...]) -> ColumnType:
    return ColumnType(pa.string(), partial(time_text, digits=sizes[0] if sizes else 0))


_SIZED: Mapping[str, Callable[[tuple[int, ...]], ColumnType]] = {
    **dict.fromkeys(("decimal", "numeric", "dec", "fixed"), _decimal),
    **dict.fromkeys(("float", "float4"), _float),
    "bit": _bit,
    "time": _time,
}
