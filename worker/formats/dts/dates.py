"""Dates and times of DTS images, which come in parts or as seconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from worker.formats.dts.wire import read_bytes, read_long

__all__ = [
    "Parts",
    "any_of_parts",
    "date_of_parts",
    "datetime_of_parts",
    "read_parts",
    "read_timestamp",
    "read_zoned",
    "time_of_parts",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Parts = list[int | None]
"""Year, month, day, hour, minute, second, microseconds (called millis); None: the type lacks the part."""


def read_timestamp(value: bytes, at: int) -> tuple[datetime, int]:
    """Seconds since 1970, then microseconds (called millis), as a time in UTC."""
    seconds, at = read_long(value, at)
    micros, at = read_long(value, at)
    return _EPOCH + timedelta(seconds=seconds, microseconds=micros), at


_FIVE_BRANCHES = b"\2\2\2\2\2"


def read_parts(value: bytes, at: int) -> tuple[Parts, int]:
    """The seven parts of a DateTime."""
    parts: Parts = []
    # Nearly every DateTime: six parts behind the byte of their branch, not negative, the year in two bytes.
    usual = value[at : at + 13]
    if usual[3::2] == _FIVE_BRANCHES and usual[0] == 2 and usual[1] > 0x7F:
        _, low, high, _, month, _, day, _, hour, _, minute, _, second = usual
        if not (high | month | day | hour | minute | second) & 0x80 and not (
            (low | month | day | hour | minute | second) & 1
        ):
            year = (low & 0x7F | high << 7) >> 1
            parts = [year, month >> 1, day >> 1, hour >> 1, minute >> 1, second >> 1]
            at += 13
    while len(parts) < 7:
        branch = value[at]
        if branch == 2:
            bits = value[at + 1]
            if bits < 0x80:
                parts.append((bits >> 1) ^ -(bits & 1))
                at += 2
            else:
                part, at = read_long(value, at + 1)
                parts.append(part)
        elif branch == 0:
            parts.append(None)
            at += 1
        else:
            raise ValueError("a part of a date that is no number")
    return parts, at


def datetime_of_parts(parts: Parts, zone: tzinfo | None = None) -> datetime | None:
    """None for a zero date. Raises ValueError for another one that no calendar has, such as 2024-02-31."""
    year, month, day, hour, minute, second, micros = parts
    if year is None or month is None or day is None:
        raise ValueError("a date without a year, month or day")
    clock = (hour or 0, minute or 0, second or 0, micros or 0)
    try:
        return datetime(year, month, day, *clock, zone)
    except ValueError:
        datetime(2000, 1, 1, *clock)  # raises if it is the clock that is wrong
        _check_zero(year, month, day)
        return None


def date_of_parts(parts: Parts) -> date | None:
    """As `datetime_of_parts`."""
    year, month, day = parts[:3]
    if year is None or month is None or day is None:
        raise ValueError("a date without a year, month or day")
    try:
        return date(year, month, day)
    except ValueError:
        _check_zero(year, month, day)
        return None


def _check_zero(year: int, month: int, day: int) -> None:
    """Raises ValueError for what is no zero date."""
    if not (0 <= year <= 9999 and 0 <= month <= 12 and 0 <= day <= 31):
        raise ValueError(f"no date: {year}-{month}-{day}")
    if year and month and day:
        date(year, month, day)


def time_of_parts(parts: Parts) -> timedelta:
    """A TIME, which runs from -838:59:59 to 838:59:59; all parts of a negative one are negative."""
    _, _, days, hours, minutes, seconds, micros = (part or 0 for part in parts)
    return timedelta(days, seconds, micros, 0, minutes, hours)


def any_of_parts(parts: Parts) -> date | timedelta | None:
    """Whatever the parts make: a date, a datetime, a time."""
    if parts[0] is None:
        return time_of_parts(parts)
    return date_of_parts(parts) if parts[3] is None else datetime_of_parts(parts)


def read_zoned(value: bytes, at: int) -> tuple[datetime | None, int]:
    """Parts, then the name of their zone, as a time in UTC."""
    parts, at = read_parts(value, at)
    name, at = read_bytes(value, at)
    moment = datetime_of_parts(parts, _zone(name.decode()))
    return (None if moment is None else moment.astimezone(UTC)), at


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
        raise ValueError(f"a time zone {name!r}, which is not known here") from None
