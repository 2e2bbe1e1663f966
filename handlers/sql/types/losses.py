"""Find values that the database would change silently: round, cut, or store without their zone."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from handlers.sql.types.driver_values import UnfitValue, text_of
from handlers.sql.types.postgresql_types import ShortText, refuse_below
from handlers.sql.types.values import Kind, kind_of
from handlers.values.bounds import BeyondCalendar


class Losses(NamedTuple):
    of: frozenset[type]
    """Types of values to check."""
    refuse: Callable[[Sequence[Any]], None]
    """Raises UnfitValue. Ignores values of other types."""


_TEXTS = frozenset((str,))
_LISTS = frozenset((list, tuple))
_NUMBERS = frozenset((Decimal, float, str))
_WITH_FRACTION = frozenset((datetime, time, timedelta, BeyondCalendar))
_OF_TIMES = {
    Kind.DATE: frozenset((date, datetime, BeyondCalendar)),
    Kind.DATETIME: frozenset((date, datetime, BeyondCalendar)),
    Kind.TIME: frozenset((time, timedelta)),
}
_ALL = frozenset((int, bool, float, Decimal, bytes, UUID, dict, str, *_LISTS, date)) | _WITH_FRACTION
_MONEY_SCALE = 2
_MOST_DIGITS = 6
_EXACT_INTEGERS = 2**53
_MOST_SINGLE = Decimal("3.4028235e38")
_COMPACT = {Kind.DATE: (8,), Kind.DATETIME: (8, 14)}
"""Lengths of dates and times without separators, in digits."""
_TEXT_BYTES = ((mysql.TINYTEXT, 2**8 - 1), (mysql.MEDIUMTEXT, 2**24 - 1), (mysql.TEXT, 2**16 - 1))
_DATE = re.compile(r"\d+-\d+-\d+[ T]+(?=\d+:)")
_SOME_DATE = re.compile(r"\d+-\d+-\d+")
_SHORT_YEAR = re.compile(r"\s*\d{1,3}[-/.]\d")
_DIGITS = re.compile(r"\s*[-+]?(\d+)(?:\.\d*)?\s*")
_SERVERS_CLOCK = re.compile(r"\b(?:now|today|tomorrow|yesterday)\b", re.IGNORECASE)
_CLOCK = re.compile(
    r"(?P<hours>(?:\d+:\d+(?::\d+)?|(?<=\d[Tt])\d{2,6}|(?<=\d )\d{6})(?:[.,]\d+)?)"
    r"(?:\s*[AaPp][Mm]\b)?\s*(?:(?:GMT|UTC)(?=[-+]))?"
    r"(?P<zone>[-+]\d\d(?::?\d\d)?|[-+]\d\b(?!\s*[a-z])|\w+/\w+|(?!(?:GMT|UTC)\b)[A-Z]{3,5}(?![a-z]))?"
)
"""A time of day, with or without colons, and its zone."""
_FRACTION = re.compile(r"[.,](\d+)")
_LITE_NUMBERS = re.compile(
    r"(?:DEC|DECIMAL|NUMERIC|NUMBER|MONEY|FIXED|BOOL|BOOLEAN|BIT|YEAR)\b", re.IGNORECASE
)
_LITE_TEXTS = ("CHAR", "CLOB", "TEXT", "BLOB")


def losses_of(type_: sa.types.TypeEngine[Any], dialect: str, declared: str = "") -> Losses | None:
    """Return the checks of a column. `declared` is the declared type in SQLite. None: the database itself
    refuses values that the column cannot store."""
    kind = kind_of(type_)
    if dialect == "sqlite":
        return _of_sqlite(kind, declared.upper())
    scale = _MONEY_SCALE if isinstance(type_, postgresql.MONEY) else getattr(type_, "scale", None)
    if isinstance(type_, sa.ARRAY):
        return _of_arrays(type_.item_type, dialect)
    if scale is not None and not isinstance(type_, mysql.FLOAT):  # a single has more digits as a double
        return Losses(_NUMBERS | {int} if scale < 0 else _NUMBERS, partial(_refuse_digits, scale=scale))
    if kind is Kind.FLOAT:
        return _of_floats(dialect, is_single=isinstance(type_, sa.REAL | mysql.FLOAT))
    if kind in _OF_TIMES:
        return _of_times(type_, kind, dialect)
    # DuckDB's texts have no length.
    return _of_texts(type_) if kind in (Kind.TEXT, Kind.OTHER) and dialect != "duckdb" else None


def _of_arrays(type_: sa.types.TypeEngine[Any], dialect: str) -> Losses | None:
    item = losses_of(type_, dialect)
    if dialect == "duckdb" and kind_of(type_) is Kind.INTEGER:  # DuckDB converts texts to integers
        item = Losses(_NUMBERS, partial(_refuse_digits, scale=0))
    return None if item is None else Losses(_LISTS | _TEXTS, partial(_refuse_items, item=item))


def _of_sqlite(kind: Kind, declared: str) -> Losses | None:
    """SQLite stores values unchanged except numbers, including numbers in texts
    (https://www.sqlite.org/datatype3.html#determination_of_column_affinity)."""
    if kind is Kind.FLOAT:
        return _of_floats("sqlite", is_single=False)
    if "INT" in declared or _LITE_NUMBERS.match(declared):
        if kind not in (Kind.INTEGER, Kind.DECIMAL):
            return None
        return Losses(_NUMBERS | {int}, partial(_refuse_rounded, kind=kind))
    if not declared or any(one in declared for one in _LITE_TEXTS):
        return None
    return Losses(_NUMBERS | {int}, partial(_refuse_rounded, kind=Kind.TEXT))


def _of_floats(dialect: str, *, is_single: bool) -> Losses | None:
    """A single may be rounded. Values beyond it become infinite in DuckDB; others refuse them."""
    if is_single:
        return Losses(_NUMBERS | {int}, _refuse_infinite) if dialect == "duckdb" else None
    return Losses(frozenset((int, Decimal, str)), _refuse_rounded_double)


def _of_times(type_: sa.types.TypeEngine[Any], kind: Kind, dialect: str) -> Losses:
    # MySQL and MariaDB refuse a zone or apply it.
    has_zone = dialect in ("mysql", "mariadb") or getattr(type_, "timezone", False)
    digits = _digits(type_)
    refuse: Callable[[Sequence[Any]], None] = partial(
        _refuse_times, kind=kind, digits=digits, has_zone=has_zone
    )
    fields = getattr(type_, "fields", None)
    if fields is not None:
        refuse = partial(refuse_below, lowest=fields.rpartition(" ")[2].lower(), others=refuse)
    of = _ALL if fields is not None or digits < _MOST_DIGITS else _ALL - _OF_TIMES[kind]
    return Losses(of | {datetime} if kind is Kind.DATE else of, refuse)


def _of_texts(type_: sa.types.TypeEngine[Any]) -> Losses | None:
    if isinstance(type_, ShortText):
        return Losses(_ALL, partial(_refuse_bytes, size=type_.size))
    if isinstance(type_, sa.Enum | mysql.SET):
        return None
    length = getattr(type_, "length", None)
    if length is None and isinstance(type_, sa.CHAR):  # bpchar
        length = sys.maxsize
    if length is not None:
        return Losses(_TEXTS, partial(_refuse_long, length=length, is_padded=isinstance(type_, sa.CHAR)))
    size = next((size for of, size in _TEXT_BYTES if isinstance(type_, of)), None)
    return None if size is None else Losses(_TEXTS, partial(_refuse_cut, size=size))


def _digits(type_: sa.types.TypeEngine[Any]) -> int:
    """Return the number of digits after the second."""
    if isinstance(type_, mysql.DATETIME | mysql.TIMESTAMP | mysql.TIME):
        return type_.fsp or 0
    precision = getattr(type_, "precision", None)
    return precision if isinstance(precision, int) else _MOST_DIGITS


def _number(value: Any, *, is_python: bool = False) -> Decimal | None:
    """Return the number, or None if it is not one (the database refuses it). Raises UnfitValue for a text
    that only Python reads as a number, unless `is_python`."""
    try:
        number = Decimal(str(value))
    except ArithmeticError:
        return None
    if type(value) is str and not is_python and ("_" in value or not value.isascii()):
        raise UnfitValue(f"{value} is not a number")
    return number


def _refuse_rounded(values: Sequence[Any], kind: Kind) -> None:
    """SQLite's integers have 64 bits. Other numbers become doubles, and so do texts that look like numbers.
    This also applies to columns whose declared type SQLite does not know (`kind`: TEXT)."""
    for value in values:
        if type(value) not in _NUMBERS and (type(value) is not int or -(2**63) <= value < 2**63):
            continue
        # Another text stays unchanged, or the column's kind refuses it.
        number = _number(value, is_python=True)
        if number is None or not number.is_finite():
            continue
        is_whole = -(2**63) <= number < 2**63 and number == number.to_integral_value()
        if not is_whole and (kind is Kind.INTEGER or Decimal(repr(float(number))) != number):
            raise UnfitValue(f"SQLite would round {value}; make it a text column")
        kept = str(int(number)) if is_whole else repr(float(number))
        if kind is Kind.TEXT and type(value) is str and value != kept:
            raise UnfitValue(f"SQLite would turn the text {value!r} into {kept}; make it a text column")


def _refuse_rounded_double(values: Sequence[Any]) -> None:
    for value in values:
        if type(value) not in (Decimal, str, int) or (type(value) is int and abs(value) <= _EXACT_INTEGERS):
            continue
        number = _number(value)
        if number is not None and number.is_finite() and not is_double(number):
            raise UnfitValue(f"{value} has more digits than a double keeps; make it a decimal column")


def is_double(number: Decimal) -> bool:
    """Whether a double, in one of its notations, equals this number exactly."""
    double = float(number)
    return number in (Decimal(repr(double)), Decimal(f"{double:.17g}"), Decimal(double))


def _refuse_infinite(values: Sequence[Any]) -> None:
    for value in values:
        number = _number(value) if type(value) in _NUMBERS or type(value) is int else None
        if number is not None and number.is_finite() and abs(number) > _MOST_SINGLE:
            raise UnfitValue(f"{value} is beyond the range of FLOAT")


def _refuse_items(values: Sequence[Any], item: Losses) -> None:
    for value in values:
        if type(value) is str:  # the labels of a set
            item.refuse(value.split(","))
        elif type(value) in _LISTS:
            item.refuse([one for one in value if type(one) not in _LISTS])
            _refuse_items([one for one in value if type(one) in _LISTS], item)


def _refuse_digits(values: Sequence[Any], scale: int) -> None:
    unit = Decimal(1).scaleb(-scale)
    for value in values:
        if type(value) is Decimal and value.same_quantum(unit):
            continue
        if type(value) not in _NUMBERS and (scale >= 0 or type(value) is not int):
            continue
        number = _number(value)
        if number is None:  # the database refuses it
            continue
        _, digits, exponent = number.as_tuple()
        if isinstance(exponent, int) and any(digits[max(0, len(digits) + exponent + scale) :]):
            raise UnfitValue(f"{value} has more than {scale} digits after the point")


def _refuse_bytes(values: Sequence[Any], size: int) -> None:
    for value in values:
        if value is not None and len(text_of(value).encode()) > size:
            raise UnfitValue(f"it has more than {size} bytes, but the column accepts no more")


def _refuse_cut(values: Sequence[Any], size: int) -> None:
    """MySQL refuses a text that is too long, unless it can cut spaces off. How many bytes a text has in its
    column's charset is as in one of these."""
    for value in values:
        kept = value.rstrip(" \t\n\v\f\r") if type(value) is str and len(value) > size // 4 else value
        if kept != value and any(
            len(kept.encode(one, "replace")) <= size < len(value.encode(one, "replace"))
            for one in ("utf-8", "latin-1", "gbk")
        ):
            raise UnfitValue(f"it has more than {size} bytes, but the column accepts no more")


def _refuse_times(values: Sequence[Any], kind: Kind, digits: int, *, has_zone: bool) -> None:
    step = 10 ** max(0, _MOST_DIGITS - digits)
    for value in values:
        if value is None:
            continue
        if type(value) is str:
            _refuse_text(value, kind, digits, has_zone=has_zone)
        elif kind is Kind.DATE and type(value) is int and len(str(value)) in _COMPACT[kind] and value > 0:
            continue  # such as 20250101, which the databases read as a date
        elif type(value) not in _OF_TIMES[kind]:
            raise UnfitValue(f"a value of {type(value).__name__} is not a {kind.name.lower()}")
        elif type(value) in _WITH_FRACTION:
            fraction = value.microseconds if isinstance(value, timedelta) else value.microsecond
            if fraction % step:
                raise UnfitValue(f"{value} has more than {digits} digits after the second")
            if kind is Kind.DATE and type(value) is datetime and value.time() != time():
                raise UnfitValue("it has a time of day, which the column would lose")


def _refuse_text(value: str, kind: Kind, digits: int, *, has_zone: bool) -> None:
    """Check one text. The database itself refuses a text that is not a time."""
    date_, clock, number = _DATE.search(value), _CLOCK.search(value), _DIGITS.fullmatch(value)
    if _SERVERS_CLOCK.search(value):
        raise UnfitValue(f"the database would read {value} as a time by its own clock")
    if kind is Kind.TIME and _SOME_DATE.search(value):
        raise UnfitValue(f"{value} has a date, which the column would lose")
    if kind is Kind.TIME and number is not None:
        raise UnfitValue(f"{value} is a number without a unit")
    if kind is not Kind.TIME and (
        _SHORT_YEAR.match(value) or (number is not None and len(number[1]) not in _COMPACT[kind])
    ):
        raise UnfitValue(f"{value} is not a {kind.name.lower()} that begins with a year of four digits")
    if clock is None and number is None and kind is not Kind.TIME:
        return
    if kind is Kind.DATE and clock is not None and clock["hours"].strip("0:.,"):
        raise UnfitValue(f"{value} has a time of day, which the column would lose")
    if kind is Kind.DATETIME and date_ is None and clock is not None and clock.start() == 0:
        raise UnfitValue(f"{value} has no date")
    if not has_zone and clock is not None and (clock["zone"] or "").strip("+-0:"):
        raise UnfitValue(f"{value} has a zone, which the column would lose")
    fractions = _FRACTION.findall(value)
    if fractions and fractions[-1][digits:].strip("0"):
        raise UnfitValue(f"{value} has more than {digits} digits after the second")


def _refuse_long(values: Sequence[Any], length: int, *, is_padded: bool) -> None:
    """The databases cut spaces at the end. A text that its source has padded is as long as the column."""
    for value in (one for one in values if type(one) is str):
        if len(value) > length:
            raise UnfitValue(f"it has {len(value)} characters, but the column accepts {length}")
        if is_padded and value.endswith(" ") and len(value) < length:
            raise UnfitValue("it ends with a space, which a CHAR column does not keep; make it VARCHAR")
