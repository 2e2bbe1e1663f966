"""Dates and times of DTS images, which are parts or seconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Parts = tuple[int | None, ...]
"""Year, month, day, hour, minute, second, microseconds (called millis). None: the type lacks the part."""


def moment_of(seconds: int, micros: int) -> datetime:
    """The time in UTC for seconds since 1970 and microseconds (which DTS calls millis)."""
    return _EPOCH + timedelta(seconds=seconds, microseconds=micros)


def datetime_of_parts(parts: Parts, zone: tzinfo | None = None) -> datetime | None:
    """Make a datetime; None for a zero date. Raises ValueError for dates such as 2024-02-31."""
    year, month, day, hour, minute, second, micros = parts
    if year is None or month is None or day is None:
        raise ValueError("a date without a year, month or day")
    clock = (hour or 0, minute or 0, second or 0, micros or 0)
    try:
        return datetime(year, month, day, *clock, zone)
    except ValueError:
        datetime(2000, 1, 1, *clock)  # raises if the time of day is wrong
        _check_zero(year, month, day)
        return None


def date_of_parts(parts: Parts) -> date | None:
    """Make a date; None and errors as in `datetime_of_parts`."""
    year, month, day = parts[:3]
    if year is None or month is None or day is None:
        raise ValueError("a date without a year, month or day")
    try:
        return date(year, month, day)
    except ValueError:
        _check_zero(year, month, day)
        return None


def _check_zero(year: int, month: int, day: int) -> None:
    """Raise ValueError unless this is a zero date."""
    if not (0 <= year <= 9999 and 0 <= month <= 12 and 0 <= day <= 31):
        raise ValueError(f"no date: {year}-{month}-{day}")
    if year and month and day:
        date(year, month, day)


def time_of_parts(parts: Parts) -> timedelta:
    """Make a TIME (-838:59:59 to 838:59:59). All parts of a negative TIME are negative."""
    _, _, days, hours, minutes, seconds, micros = (part or 0 for part in parts)
    return timedelta(days, seconds, micros, 0, minutes, hours)


def any_of_parts(parts: Parts) -> date | timedelta | None:
    """Make a date, a datetime or a time, whichever the parts give."""
    if parts[0] is None:
        return time_of_parts(parts)
    return date_of_parts(parts) if parts[3] is None else datetime_of_parts(parts)


def zoned_of_parts(parts: Parts, zone: str) -> datetime | None:
    """Make a time in UTC from parts in the named zone."""
    moment = datetime_of_parts(parts, _zone(zone))
    return None if moment is None else moment.astimezone(UTC)


_OFFSET = re.compile(r"(?:GMT|UTC)?([+-])(\d{1,2})(?::?(\d\d))?", re.ASCII)


@lru_cache(maxsize=1_000)
def _zone(name: str) -> tzinfo:
    found = _OFFSET.fullmatch(name)
    if found is not None:
        offset = timedelta(hours=int(found[2]), minutes=int(found[3] or 0))
        return timezone(-offset if found[1] == "-" else offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"an unknown time zone, {name!r}") from None
