"""Dates and times of Kafka Connect's JSON, including those beyond Python's calendar, and its exact numbers.

Numbers too long for any source are refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec

from handlers.mysql.values import converter_of
from handlers.values.bounds import MOST_FRACTION, MOST_ZEROS, BeyondBounds, BeyondCalendar, bounded

# Wide enough for PostgreSQL's longest numbers, which have 147,455 digits.
EXACT = Context(prec=150_000, traps=[Inexact, InvalidOperation, Overflow])
_MOST_BYTES, _MOST_INTEGER_BYTES = 61_300, 64
"""Most bytes of such a decimal, and of an integer."""
_FEW_BITS = 4_096
"""Most bits that are converted in one step. Python's time for it grows with the square of the bits."""


def unscaled(value: bytes) -> int:
    """Read a java.math.BigInteger (two's complement, big endian). Raises ValueError if it is too long."""
    if len(value) > _MOST_INTEGER_BYTES:
        raise ValueError("longer than an integer of any source")
    return int.from_bytes(value, "big", signed=True)


def scaled(scale: int) -> Callable[[bytes], Decimal]:
    """Make a reader of `org.apache.kafka.connect.data.Decimal` with `scale` digits after the point.

    Raises BeyondBounds for a scale that no source has. The reader raises it for a number that is too long."""
    if not -MOST_ZEROS <= scale <= MOST_FRACTION:
        raise BeyondBounds(f"a decimal with a scale of {scale}")
    times, from_bytes, unit = EXACT.multiply, int.from_bytes, Decimal(1).scaleb(-scale)

    def read(value: bytes) -> Decimal:
        if len(value) > _MOST_BYTES:
            raise BeyondBounds(f"a decimal of {len(value)} bytes")
        number = from_bytes(value, "big", signed=True)
        if len(value) <= _FEW_BITS // 8:
            return times(unit, number)
        return times(unit, _long(number, 1 << number.bit_length().bit_length()))

    return read


def _long(number: int, bits: int) -> Decimal:
    """Convert a number of up to `bits` bits (a power of two) in halves."""
    if bits <= _FEW_BITS:
        return Decimal(number)
    half = bits >> 1
    low = _long(number & ((1 << half) - 1), half)
    return EXACT.add(EXACT.multiply(_long(number >> half, half), _power_of_two(half)), low)


@cache
def _power_of_two(bits: int) -> Decimal:
    return EXACT.power(2, bits)


def digits_of(value: Any) -> str:
    """The digits of a plain JSON number. Raises ValueError for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise ValueError("no number")  # noqa: TRY004 - as for any value of the wrong type here
    if isinstance(value, Decimal):
        return str(bounded(value))
    return repr(value) if isinstance(value, float) else str(value)


Time = TypeVar("Time", date, datetime)

_EPOCH = datetime(1970, 1, 1)
_DAY = timedelta(days=1)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_YEARS, _DAYS = 400, 146_097
"""The period after which the calendar repeats, in years and in days."""
_INFINITY, _MINUS_INFINITY = BeyondCalendar("infinity"), BeyondCalendar("-infinity")
_FIRST_YEAR = -4713
"""The first year of PostgreSQL's calendar, 4714 BC."""
# The values that mean PostgreSQL's infinities in each unit: org.postgresql.PGStatement.
_INFINITE = {
    **dict.fromkeys((9_223_372_036_825_200_000, 9_223_372_036_825_200), _INFINITY),
    **dict.fromkeys((-9_223_372_036_832_400_000, -9_223_372_036_832_400), _MINUS_INFINITY),
}
# The connector sends dates as days since 1970, and infinities overflow its 32 bits. In the stream it converts
# PostgreSQL's days since 2000; in the snapshot, milliseconds in the time zone of its machine.
_INFINITE_DAYS = {
    **dict.fromkeys((-2_147_472_692, *range(-622_191_236, -622_191_231)), _INFINITY),
    **dict.fromkeys((-2_147_472_691, *range(-625_821_275, -625_821_269)), _MINUS_INFINITY),
}


_FINER = "finer than microseconds"
_FINER_TEXT = re.compile(r"\.\d{6}\d*[1-9]", re.ASCII)
_LONGEST_ZULU = len("2038-01-19T03:14:07.123456Z")
_read_zoned = msgspec.json.Decoder(Annotated[datetime, msgspec.Meta(tz=True)]).decode


class NoTime(ValueError):
    """A number that is not a time of PostgreSQL, because the connector has lost the real time."""


LOST = object()
"""A time that the connector has lost."""
Beyond = Callable[[Callable[[Any], Any], Any], Any]
"""Handles a value beyond Python's calendar. The arguments are the value's converter and the value. The
converter makes a BeyondCalendar, or raises NoTime."""


def as_told(far: Callable[[Any], Any], value: Any) -> Any:
    return far(value)


def as_none(far: Callable[[Any], Any], value: Any) -> Any:
    with suppress(NoTime):
        found = far(value)  # raises ValueError if the value is not a time at all
        return None if type(found) is BeyondCalendar else found
    return None


def as_lost(far: Callable[[Any], Any], value: Any) -> Any:
    """Convert the value; LOST if the connector has lost the time."""
    try:
        return far(value)
    except NoTime:
        return LOST


def date_of(beyond: Beyond) -> Callable[[int], Any]:
    """Make a reader of days since 1970."""

    def far(days: int) -> date | BeyondCalendar:
        if days in _INFINITE_DAYS:
            return _INFINITE_DAYS[days]
        repeats, day = divmod(days, _DAYS)
        return _far(date.fromordinal(_EPOCH_DAY + day), repeats)

    def day(days: int) -> Any:
        try:
            return date.fromordinal(_EPOCH_DAY + days)
        except (ValueError, OverflowError):
            return beyond(far, days)

    return day


def moment_of(unit: timedelta, beyond: Beyond) -> Callable[[int], Any]:
    """Make a reader of times that are counted in `unit` since 1970."""

    def far(value: int) -> datetime | BeyondCalendar:
        if value in _INFINITE:
            return _INFINITE[value]
        repeats, rest = divmod(value, _DAYS * _DAY // unit)
        return _far(_EPOCH + unit * rest, repeats)

    def moment(value: int) -> Any:
        try:
            return _EPOCH + unit * value
        except OverflowError:
            return beyond(far, value)

    return moment


def _far(near: Time, repeats: int) -> Time | BeyondCalendar:
    """The date or time `repeats` times 400 years later. Raises NoTime for years before 4714 BC."""
    year = near.year + _YEARS * repeats
    if MINYEAR <= year <= MAXYEAR:
        return near.replace(year=year)
    if year < _FIRST_YEAR:
        raise NoTime("beyond PostgreSQL's calendar; the connector cannot send such times")
    shown, era = (f"{year:04}", "") if year > 0 else (f"{1 - year:04}", " BC")
    return BeyondCalendar(f"{shown}{str(near)[4:].replace('+00:00', '+00')}{era}")


def length_of(unit: timedelta) -> Callable[[int], timedelta]:
    def length(value: int) -> timedelta:
        try:
            return unit * value
        except OverflowError:
            raise ValueError("not a time: beyond any bound") from None

    return length


def of_nanos(of_micros: Callable[[int], Any]) -> Callable[[int], Any]:
    """Make a reader of nanoseconds. It raises ValueError for fractions of a microsecond."""

    def read(value: int) -> Any:
        micros, rest = divmod(value, 1_000)
        if rest:
            raise ValueError(_FINER)
        return of_micros(micros)

    return read


def in_utc(beyond: Beyond) -> Callable[[str], Any]:
    """Make a reader of zoned timestamps as text. It raises ValueError, also for nanoseconds."""

    def far(value: datetime) -> datetime | BeyondCalendar:
        repeats = 1 if value.year == MAXYEAR else -1
        return _far(value.replace(year=value.year - _YEARS * repeats).astimezone(UTC), repeats)

    def utc(text: str) -> Any:
        if len(text) > _LONGEST_ZULU:
            _refuse_finer(text)
        try:
            value = _read_zoned(f'"{text}"')
        except msgspec.DecodeError:
            return beyond(_far_moment, text)
        try:
            return value if value.tzinfo is UTC else value.astimezone(UTC)
        except OverflowError:
            return beyond(far, value)

    return utc


def _refuse_finer(text: str) -> None:
    """Raise ValueError for fractions of a microsecond, which Python drops or rounds."""
    if _FINER_TEXT.search(text):
        raise ValueError(_FINER)


_ZONED = re.compile(
    r"([+-]?\d{4,7})(-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?)(Z|[+-]\d\d:\d\d)?( BC)?(Z|[+-]\d\d:\d\d)?",
    re.ASCII,
)


def _far_moment(value: str) -> datetime | BeyondCalendar:
    """Read a timestamp with a zone in a year beyond Python's calendar. Raises ValueError."""
    if value in ("infinity", "-infinity"):
        return BeyondCalendar(value)
    _refuse_finer(value)
    found = _ZONED.fullmatch(value)
    if found is None:
        raise ValueError("no timestamp")
    year = 1 - int(found[1]) if found[4] else int(found[1])
    repeats, year = divmod(year - _EPOCH.year, _YEARS)
    near = datetime.fromisoformat(f"{year + _EPOCH.year}{found[2]}{found[3] or found[5] or 'Z'}")
    return _far(near.astimezone(UTC), repeats)


def zoned_time(text: str) -> timedelta:
    """Read PostgreSQL's time with a zone, which Debezium sends in UTC. 24:00:00 is valid too."""
    if text.startswith("24:00"):
        return _DAY
    _refuse_finer(text)
    moment = time.fromisoformat(text)
    length = timedelta(
        hours=moment.hour, minutes=moment.minute, seconds=moment.second, microseconds=moment.microsecond
    )
    return (length - (moment.utcoffset() or timedelta())) % _DAY


def temporal_text(type_text: str) -> Callable[[str], Any]:
    """Make a reader for `time.precision.mode` isostring (`2020-01-01Z`, `2020-01-01T10:00:00Z`)."""
    read = converter_of(type_text)

    def from_text(value: str) -> Any:
        if read is None or not isinstance(value, str):
            raise ValueError(f"no {type_text}")
        return read.read(value.removesuffix("Z").replace("T", " "))

    return from_text
