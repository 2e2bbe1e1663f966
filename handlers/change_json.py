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


def _duration(value: timedelta) -> str:
    """As MySQL prints a TIME: [-]HHH:MM:SS[.ffffff]."""
    micros = abs(value) // timedelta(microseconds=1)
    seconds, fraction = divmod(micros, 1_000_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    sign = "-" if value < timedelta() else ""
    return f"{sign}{hours:02}:{minutes:02}:{seconds:02}" + (f".{fraction:06}" if fraction else "")


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
    timedelta: _duration,
    (bytes, bytearray, memoryview): lambda value: {"base64": base64.b64encode(value).decode("ascii")},
    (list, tuple): lambda value: [json_value(item) for item in value],
    (set, frozenset): lambda value: sorted((json_value(item) for item in value), key=str),
    Mapping: lambda value: {str(key): json_value(item) for key, item in value.items()},
    (UUID, BeyondCalendar): str,
    (str, int): lambda value: value,  # of a subclass
}
