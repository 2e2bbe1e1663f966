"""Dates and times of Kafka Connect's JSON; None for what no calendar has (PostgreSQL's infinity)."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from handlers.mysql.values import converter_of

__all__ = [
    "beyond_calendar",
    "date_of",
    "in_utc",
    "infinity_of",
    "length_of",
    "moment_of",
    "of_nanos",
    "temporal_text",
    "zoned_time",
]

_EPOCH = datetime(1970, 1, 1)
_DAY = timedelta(days=1)
_EPOCH_DAY = date(1970, 1, 1).toordinal()


def date_of(days: int) -> date | None:
    try:
        return date.fromordinal(_EPOCH_DAY + days)
    except (ValueError, OverflowError):
        return None


def moment_of(unit: timedelta) -> Callable[[int], datetime | None]:
    def moment(value: int) -> datetime | None:
        try:
            return _EPOCH + unit * value
        except OverflowError:
            return None

    return moment


def length_of(unit: timedelta) -> Callable[[int], timedelta]:
    def length(value: int) -> timedelta:
        try:
            return unit * value
        except OverflowError:
            raise ValueError("no time: beyond any bound") from None

    return length


def of_nanos(of_micros: Callable[[int], Any]) -> Callable[[int], Any]:
    return lambda value: of_micros(value // 1_000)


def in_utc(value: datetime) -> datetime | None:
    if value.tzinfo is UTC:
        return value
    try:
        return value.astimezone(UTC)
    except OverflowError:
        return None


_ZONED = re.compile(r"[+-]?\d{4,}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( BC|Z|[+-]\d\d:\d\d)+", re.ASCII)


def beyond_calendar(value: Any) -> datetime | None:
    """A zoned timestamp beyond Python's calendar."""
    if isinstance(value, str) and (_ZONED.fullmatch(value) or value in ("infinity", "-infinity")):
        return None
    raise ValueError("no timestamp")


def zoned_time(text: str) -> timedelta:
    """PostgreSQL's time with a zone, which Debezium sends in UTC; 24:00:00 is a time, too."""
    if text.startswith("24:00"):
        return _DAY
    moment = time.fromisoformat(text)
    length = timedelta(
        hours=moment.hour, minutes=moment.minute, seconds=moment.second, microseconds=moment.microsecond
    )
    return (length - (moment.utcoffset() or timedelta())) % _DAY


def temporal_text(type_text: str) -> Callable[[str], Any]:
    """Of `time.precision.mode` isostring: `2020-01-01Z`, `2020-01-01T10:00:00Z`, `10:00:00Z`."""
    read = converter_of(type_text)

    def from_text(value: str) -> Any:
        if read is None or not isinstance(value, str):
            raise ValueError(f"no {type_text}")
        return read.read(value.removesuffix("Z").replace("T", " "))

    return from_text


# What stands for PostgreSQL's infinities: org.postgresql.PGStatement, in each unit. Of dates the connector
# makes days of them, by one calendar in a snapshot and by another after it.
_FIRST_INFINITE_DAY, _LAST_INFINITE_DAY = 2_145_042_600, -2_147_472_000
_INFINITE = {
    **dict.fromkeys((9_223_372_036_825_200_000, 9_223_372_036_825_200), "infinity"),
    **dict.fromkeys((-9_223_372_036_832_400_000, -9_223_372_036_832_400), "-infinity"),
}


def infinity_of(value: Any, *, is_date: bool) -> str | None:
    """`infinity` or `-infinity` as PostgreSQL writes them; None for another value. Of plain JSON."""
    if value in ("infinity", "-infinity"):
        return str(value)
    if not isinstance(value, int):
        return None
    if not is_date:
        return _INFINITE.get(value)
    if value >= _FIRST_INFINITE_DAY:
        return "infinity"
    return "-infinity" if value <= _LAST_INFINITE_DAY else None
