"""Values that a column would change, and that the database does not refuse: rounded, cut, without a zone."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from handlers.beyond_calendar import BeyondCalendar
from handlers.sql.types.driver_values import UnfitValue
from handlers.sql.types.values import Kind, kind_of


class Losses(NamedTuple):
    of: frozenset[type]
    """Types of values that have to be looked at."""
    refuse: Callable[[Sequence[Any]], None]
    """Raises UnfitValue. It passes over values of other types."""


_TEXTS = frozenset((str,))
_LISTS = frozenset((list, tuple))
_NUMBERS = frozenset((Decimal, float, str))
_WITH_FRACTION = frozenset((datetime, time, timedelta, BeyondCalendar))
_MONEY_SCALE = 2
_MOST_DIGITS = 6
_TEXT_BYTES = ((mysql.TINYTEXT, 2**8 - 1), (mysql.MEDIUMTEXT, 2**24 - 1), (mysql.TEXT, 2**16 - 1))
_DATE = re.compile(r"\d+-\d+-\d+[ T]+(?=\d+:)")
_CLOCK = re.compile(r"(?P<hours>\d+:\d+(?::\d+)?(?:[.,]\d+)?)\s*(?P<zone>[+-]\d\d(?::?\d\d)?|\w+/\w+)?")
_FRACTION = re.compile(r"[.,](\d+)")


def losses_of(type_: sa.types.TypeEngine[Any], dialect: str) -> Losses | None:
    """None: the database refuses what such a column cannot hold."""
    kind = kind_of(type_)
    if dialect == "sqlite":  # it keeps a value as it is, but for numbers, also those that are texts
        is_exact = kind in (Kind.INTEGER, Kind.DECIMAL)
        return Losses(_NUMBERS | {int}, partial(_refuse_rounded, kind=kind)) if is_exact else None
    scale = _MONEY_SCALE if isinstance(type_, postgresql.MONEY) else getattr(type_, "scale", None)
    if isinstance(type_, sa.ARRAY):
        item = losses_of(type_.item_type, dialect)
        return None if item is None else Losses(_LISTS, partial(_refuse_items, item=item))
    if scale is not None and not isinstance(type_, mysql.FLOAT):  # a single has more digits as a double
        return Losses(_NUMBERS, partial(_refuse_digits, scale=scale))
    if kind in (Kind.DATE, Kind.DATETIME, Kind.TIME):
        return _of_times(type_, kind, dialect)
    # DuckDB's texts have no length.
    return _of_texts(type_) if kind is Kind.TEXT and dialect != "duckdb" else None


def _of_times(type_: sa.types.TypeEngine[Any], kind: Kind, dialect: str) -> Losses:
    # MySQL and MariaDB refuse a zone, or heed it.
    has_zone = dialect in ("mysql", "mariadb") or getattr(type_, "timezone", False)
    digits = _digits(type_)
    refuse = partial(_refuse_times, kind=kind, digits=digits, has_zone=has_zone)
    return Losses(_TEXTS | _WITH_FRACTION if digits < _MOST_DIGITS else _TEXTS, refuse)


def _of_texts(type_: sa.types.TypeEngine[Any]) -> Losses | None:
    if isinstance(type_, sa.Enum | mysql.SET):
        return None
    length = getattr(type_, "length", None)
    if length is not None:
        return Losses(_TEXTS, partial(_refuse_long, length=length, is_padded=isinstance(type_, sa.CHAR)))
    size = next((size for of, size in _TEXT_BYTES if isinstance(type_, of)), None)
    return None if size is None else Losses(_TEXTS, partial(_refuse_spaces, size=size))


def _digits(type_: sa.types.TypeEngine[Any]) -> int:
    """Of a second's fraction."""
    if isinstance(type_, mysql.DATETIME | mysql.TIMESTAMP | mysql.TIME):
        return type_.fsp or 0
    precision = getattr(type_, "precision", None)
    return precision if isinstance(precision, int) else _MOST_DIGITS


def _refuse_rounded(values: Sequence[Any], kind: Kind) -> None:
    """SQLite's integers have 64 bits. What else is a number becomes a double."""
    for value in values:
        if type(value) is int and -(2**63) <= value < 2**63:
            continue
        try:
            number = Decimal(str(value)) if type(value) in _NUMBERS or type(value) is int else Decimal(0)
        except ArithmeticError:  # a text stays what it is, and is refused in a column of integers
            continue
        is_kept = number.is_nan() or (abs(number) < 2**63 and number == number.to_integral_value())
        if not is_kept and (kind is Kind.INTEGER or Decimal(repr(float(number))) != number):
            raise UnfitValue(f"SQLite would round {value}; make it a column of text")


def _refuse_items(values: Sequence[Any], item: Losses) -> None:
    for value in values:
        if type(value) in _LISTS:
            item.refuse(value)
            _refuse_items(value, item)


def _refuse_digits(values: Sequence[Any], scale: int) -> None:
    unit = Decimal(1).scaleb(-scale)
    for value in values:
        if type(value) not in _NUMBERS or (type(value) is Decimal and value.same_quantum(unit)):
            continue
        try:
            _, digits, exponent = Decimal(str(value)).as_tuple()
        except ArithmeticError:  # no number: the database says so
            continue
        if isinstance(exponent, int) and any(digits[max(0, len(digits) + exponent + scale) :]):
            raise UnfitValue(f"{value} has more than {scale} digits after the point")


def _refuse_times(values: Sequence[Any], kind: Kind, digits: int, *, has_zone: bool) -> None:
    step = 10 ** max(0, _MOST_DIGITS - digits)
    for value in values:
        if type(value) is str:
            _refuse_text(value, kind, digits, has_zone=has_zone)
        elif type(value) in _WITH_FRACTION:
            fraction = value.microseconds if isinstance(value, timedelta) else value.microsecond
            if fraction % step:
                raise UnfitValue(f"{value} has more than {digits} digits after the second")


def _refuse_text(value: str, kind: Kind, digits: int, *, has_zone: bool) -> None:
    """A text that is no time at all is left to the database."""
    date, clock = _DATE.search(value), _CLOCK.search(value)
    if kind is Kind.TIME and date is not None:
        raise UnfitValue(f"{value} has a date, which the column would lose")
    if clock is None and kind is not Kind.TIME:
        return
    if kind is Kind.DATE and clock is not None and clock["hours"].strip("0:.,"):
        raise UnfitValue(f"{value} has a time of day, which the column would lose")
    if kind is Kind.DATETIME and clock is not None and clock.start() == 0:
        raise UnfitValue(f"{value} has no date")
    if not has_zone and clock is not None and (clock["zone"] or "").strip("+-0:"):
        raise UnfitValue(f"{value} has a zone, which the column would lose")
    fractions = _FRACTION.findall(value)
    if fractions and fractions[-1][digits:].strip("0"):
        raise UnfitValue(f"{value} has more than {digits} digits after the second")


def _refuse_long(values: Sequence[Any], length: int, *, is_padded: bool) -> None:
    """The databases cut spaces off; a text that its source has padded is as long as the column."""
    for value in values:
        if type(value) is not str:
            continue
        if len(value) > length:
            raise UnfitValue(f"it has {len(value)} characters, and the column takes {length}")
        if is_padded and value.endswith(" ") and len(value) < length:
            raise UnfitValue("it ends with a space, which a column of CHAR does not keep; make it VARCHAR")


def _refuse_spaces(values: Sequence[Any], size: int) -> None:
    """MySQL and MariaDB refuse a text that is too long unless they can cut spaces off."""
    for value in values:
        if type(value) is str and value.endswith(" ") and len(value.encode()) > size:
            raise UnfitValue(f"it has more than {size} bytes, and the column takes no more")
