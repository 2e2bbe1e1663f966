"""Times as JSON writers count them, in milliseconds since 1970."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

__all__ = ["reader_of"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_IN_A_MILLISECOND: Mapping[str, Decimal] = {
    "s": Decimal("0.001"),
    "ms": Decimal(1),
    "us": Decimal(1_000),
    "ns": Decimal(1_000_000),
}
_LIMIT = Decimal(10) ** 18


def reader_of(unit: str) -> Callable[[Any], int]:
    """How a time in s, ms, us, ns or iso8601 is read. Without a zone an ISO 8601 time is in UTC.

    What it gives raises ValueError for what is no such time.
    """
    if unit == "iso8601":
        return _iso8601
    divisor = _IN_A_MILLISECOND[unit]

    def read(value: Any) -> int:
        try:
            count = Decimal(repr(value) if isinstance(value, float) else value) / divisor
        except (ArithmeticError, TypeError, ValueError):
            raise ValueError(f"no time in {unit}") from None
        if isinstance(value, bool) or not count.is_finite() or abs(count) > _LIMIT:
            raise ValueError(f"no time in {unit}")
        return int(count)

    return read


def _iso8601(value: Any) -> int:
    try:
        time = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError("no ISO 8601 time") from None
    return (time.replace(tzinfo=time.tzinfo or UTC) - _EPOCH) // timedelta(milliseconds=1)
