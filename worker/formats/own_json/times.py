"""Convert times in JSON to milliseconds since 1970."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from handlers.decimals import bounded
from worker.formats.times import has_calendar

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NANOSECONDS: Mapping[str, int] = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_MILLISECOND = 1_000_000
_LIMIT = 10**23  # nanoseconds: far beyond the year 9999


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
    """A number, also if it is written as text. None for any other value."""
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
