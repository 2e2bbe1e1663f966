"""Changes as JSON: what `files` writes and `log` shows. docs/formats.md has the table of values."""

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
from handlers.beyond_calendar import BeyondCalendar
from handlers.decimals import digits

_encode = msgspec.json.Encoder().encode


def line(change: Change, database: str, table: str) -> bytes:
    """One change as a line of JSON with its line break. Raises TypeError as `json_value` does."""
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
    """The row with values that JSON can hold, none of them changed in meaning."""
    if row is None:
        return None
    return {
        column: value if type(value) in _AS_THEY_ARE else json_value(value) for column, value in row.items()
    }


def json_value(value: Any) -> Any:
    """One value. Raises TypeError for a type that has no agreed form."""
    if type(value) in _AS_THEY_ARE:
        return value
    for kind, encode in _ENCODERS.items():
        if isinstance(value, kind):
            return encode(value)
    raise TypeError(f"a value of type {type(value).__name__} has no form in JSON: {value!r:.60}")


def duration_text(value: timedelta) -> str:
    """As MySQL prints a TIME, and PostgreSQL reads an interval: `[-]HH:MM:SS[.ffffff]`, hours beyond 24.

    >>> duration_text(timedelta(hours=-838, minutes=-59, seconds=-59))
    '-838:59:59'
    """
    microseconds = value // timedelta(microseconds=1)
    sign = "-" if microseconds < 0 else ""
    seconds, microseconds = divmod(abs(microseconds), 1_000_000)
    fraction = f".{microseconds:06d}" if microseconds else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"


def json_float(value: float) -> float | str:
    """JSON has no other numbers than finite ones: the others are texts."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_AS_THEY_ARE = frozenset((str, int, bool, type(None)))
# The first that fits: a datetime is a date, too.
_ENCODERS: Mapping[type | tuple[type, ...], Callable[[Any], Any]] = {
    float: json_float,
    # Text, for a reader that takes numbers for doubles would lose digits; never with an exponent.
    Decimal: digits,
    (datetime, date, time): lambda value: value.isoformat(),
    timedelta: duration_text,
    (bytes, bytearray, memoryview): lambda value: {"base64": base64.b64encode(value).decode("ascii")},
    (list, tuple): lambda value: [json_value(item) for item in value],
    (set, frozenset): lambda value: sorted((json_value(item) for item in value), key=str),
    Mapping: lambda value: {str(key): json_value(item) for key, item in value.items()},
    (UUID, BeyondCalendar): str,
    (str, int): lambda value: value,  # of a subclass
}
