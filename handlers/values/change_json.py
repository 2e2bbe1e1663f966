"""Changes as JSON: written by `files`, shown by `log`. docs/formats.md lists how each value is encoded."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from handlers.api import Change, Row
from handlers.values.bounds import BeyondCalendar, digits

_encode = msgspec.json.Encoder().encode


def line(change: Change, database: str, table: str) -> bytes:
    """Encode one change as a line of JSON with its line break. Raises TypeError as `json_value` does."""
    return (
        _encode(
            {
                "op": change.op,
                "database": database,
                "table": table,
                "key": json_row(change.key),
                "before": json_row(change.before),
                "after": json_row(change.after),
                "sql": change.sql,
                "source_time_ms": change.source_time_ms,
                "transaction": change.transaction,
                "topic": change.topic,
                "partition": change.partition,
                "offset": change.offset,
                "index": change.index,
            }
        )
        + b"\n"
    )


def json_row(row: Row | None) -> Row | None:
    """Convert the row's values to values that JSON can represent, without loss of meaning."""
    if row is None:
        return None
    return {
        column: value if type(value) in _AS_THEY_ARE else json_value(value) for column, value in row.items()
    }


def json_value(value: Any) -> Any:
    """Convert one value. Raises TypeError if its type has no defined JSON form."""
    if type(value) in _AS_THEY_ARE:
        return value
    for kind, encode in _ENCODERS.items():
        if isinstance(value, kind):
            return encode(value)
    raise TypeError(f"a value of type {type(value).__name__} cannot be written as JSON: {value!r:.60}")


def json_text(value: Any) -> str:
    """Encode one value. Raises as `json_value`."""
    return msgspec.json.encode(json_value(value)).decode()


def duration_text(value: timedelta, digits: int = 0) -> str:
    """Format a duration as MySQL prints a TIME: `[-]HH:MM:SS[.ffffff]`. Hours may exceed 24.

    `digits`: of the fraction. More if the value has more, because not every source says how many.

    >>> duration_text(timedelta(hours=-838, minutes=-59, seconds=-59))
    '-838:59:59'
    """
    microseconds = value // timedelta(microseconds=1)
    sign = "-" if microseconds < 0 else ""
    seconds, microseconds = divmod(abs(microseconds), 1_000_000)
    if microseconds % 10 ** (6 - digits):
        digits = 6
    fraction = f".{microseconds:06d}"[: digits + 1] if digits else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"


def json_float(value: float) -> float | str:
    """Return a finite number as it is, and any other as text, because JSON has only finite numbers."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_AS_THEY_ARE = frozenset((str, int, bool, type(None)))
# The first match counts: a datetime is also a date.
_ENCODERS: Mapping[type | tuple[type, ...], Callable[[Any], Any]] = {
    float: json_float,
    # Text, because a reader that parses numbers as doubles would lose digits. Never with an exponent.
    Decimal: digits,
    (datetime, date, time): lambda value: value.isoformat(),
    timedelta: duration_text,
    (bytes, bytearray, memoryview): lambda value: {"base64": base64.b64encode(value).decode("ascii")},
    (list, tuple): lambda value: [json_value(item) for item in value],
    (set, frozenset): lambda value: sorted((json_value(item) for item in value), key=str),
    Mapping: lambda value: {str(key): json_value(item) for key, item in value.items()},
    (UUID, BeyondCalendar): str,
    (str, int): lambda value: value,  # a subclass
}
