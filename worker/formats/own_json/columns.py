"""Convert JSON values to values of a configured column type, and times to milliseconds since 1970."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

from handlers.mysql.types import BYTES, INTEGERS, SHAPES, TEXTS, MySQLType, read_type
from handlers.mysql.values import Converter, converter_of
from handlers.values.decimals import bounded
from worker.formats.interface import has_calendar
from worker.formats.maxwell.wkt import geometry_bytes

Convert = Callable[[Any], Any]
"""Converts a value other than None, from a JSON decoder with `json_values.number`, to the column's value.
Raises ValueError or ArithmeticError if it does not fit the type."""

_TEXTS = frozenset((*TEXTS, "uuid"))
_INTEGERS = (*INTEGERS, "integer", "bit", "year")
_OTHERS = ("decimal", "numeric", "float", "double", "date", "datetime", "timestamp", "time", "enum", "set")
_ZONED = re.compile(r":\d\d(?:\.\d{1,6}0*)?(?:Z|[+-]\d\d(?::?\d\d)?)\Z", re.ASCII)
_read_timestamp = cast(Converter, converter_of("timestamp")).read
TYPE_NAMES = ("boolean", "json", *_INTEGERS, *_OTHERS, *sorted((*_TEXTS, *BYTES, *SHAPES)))
"""The allowed column types, without size and attributes."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NANOSECONDS: Mapping[str, int] = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_MILLISECOND = 1_000_000
_LIMIT = 10**23  # nanoseconds: far beyond the year 9999


def converter(type_text: str) -> Convert | None:
    """The conversion for a column type. None: objects and arrays become text, other values stay."""
    mysql_type = read_type(type_text)
    name = mysql_type.name
    if name == "json":
        return None
    special = _SPECIAL.get(name)
    if special is not None:
        return special(mysql_type)
    known = None if name in _TEXTS else converter_of(type_text)
    if known is None:
        return _text
    read = known.read
    return lambda value: read(_text(value))


def _text(value: object) -> str:
    """The characters of a text, the digits of a number, or 1 and 0 for true and false."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, str | int | Decimal):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    raise ValueError("an object or an array")


def said(value: object) -> str:
    """The value as JSON writes it, but text without quotes."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _own_text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError("no text")


def _boolean(value: Any) -> bool:
    if value in (True, 1, "true", "t", "1"):
        return True
    if value in (False, 0, "false", "f", "0"):
        return False
    raise ValueError("neither true nor false")


def _timestamp(value: object) -> datetime | None:
    text = _own_text(value)
    if _ZONED.search(text):
        return datetime.fromisoformat(text).astimezone(UTC)
    found: datetime | None = _read_timestamp(text)
    return found


def _bytes_of(mysql_type: MySQLType) -> Convert:
    length = mysql_type.padded_to

    def read(value: object) -> bytes:
        try:
            return base64.b64decode(_own_text(value), validate=True).ljust(length, b"\0")
        except binascii.Error:
            raise ValueError("no base64") from None

    return read


def _set_of(mysql_type: MySQLType) -> Convert:
    labels = mysql_type.labels

    def read(value: object) -> tuple[str, ...]:
        chosen = value if isinstance(value, list) else list(filter(None, _own_text(value).split(",")))
        if not all(label in labels for label in chosen):
            raise ValueError(f"not one of its {len(labels)} labels")
        return tuple(label for label in labels if label in chosen)

    return read


_SPECIAL: Mapping[str, Callable[[MySQLType], Convert]] = {
    "boolean": lambda _: _boolean,
    "timestamp": lambda _: _timestamp,
    "set": _set_of,
    **dict.fromkeys(BYTES, _bytes_of),
    **dict.fromkeys(SHAPES, lambda _: lambda value: geometry_bytes(_own_text(value))),
}


def reader_of(unit: str) -> Callable[[Any], int]:
    """Make a reader of times in s, ms, us, ns or iso8601. An ISO 8601 time without a zone is in UTC.

    The reader raises ValueError for other values."""
    if unit == "iso8601":
        return _iso8601
    unit_ns = _NANOSECONDS[unit]

    def read(value: Any) -> int:
        count = _exact(value)
        if count is None or abs(count) > _LIMIT or abs(count) * unit_ns > _LIMIT:
            raise ValueError(f"not a time in {unit}")
        return _checked(int(count * unit_ns // _MILLISECOND))

    return read


def _exact(value: Any) -> Decimal | None:
    """Read a number, which may be written as text. None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        return None
    try:
        count = bounded(Decimal(repr(value) if isinstance(value, float) else value))
    except ArithmeticError:
        return None
    return count if count.is_finite() else None


def _iso8601(value: Any) -> int:
    try:
        time = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError("not an ISO 8601 time") from None
    return _checked((time.replace(tzinfo=time.tzinfo or UTC) - _EPOCH) // timedelta(milliseconds=1))


def _checked(time_ms: int) -> int:
    if not has_calendar(time_ms):
        raise ValueError("outside the years 1 to 9999; is json.time_unit right?")
    return time_ms
