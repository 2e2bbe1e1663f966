"""Values of rows compared as SQL compares them. No error holds a value."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isfinite, isnan
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from handlers.beyond_calendar import BeyondCalendar

__all__ = ["FilterFault", "compared", "kind_of", "truth"]

_SIGNS: dict[str, Callable[[Any, Any], bool]] = {"=": eq, "<>": ne, ">": gt, ">=": ge, "<": lt, "<=": le}
_Number = bool | int | float | Decimal
_NUMBERS = (bool, int, float, Decimal)
_NOT_ALL_ALIKE = frozenset({float, Decimal, datetime})
"""Types of which not all values compare: NaN, and times with a zone beside those without one."""
_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (_NUMBERS, "a number"),
    (str, "a text"),
    ((datetime, BeyondCalendar), "a time"),
    (date, "a date"),
    (bytes, "bytes"),
)


class FilterFault(ValueError):
    """The condition cannot be decided for a row."""


def compared(sign: str, left: Any, right: Any) -> bool | None:
    """None where one is NULL. Raises FilterFault for values that do not compare."""
    if left is None or right is None:
        return None
    kind = type(left)
    if kind is not type(right) or kind in _NOT_ALL_ALIKE:
        left, right = _alike(left, right)
    try:
        return _SIGNS[sign](left, right)
    except (TypeError, ArithmeticError):
        raise _unlike(left, right) from None


def _alike(left: Any, right: Any) -> tuple[Any, Any]:
    """Two values that Python compares as SQL compares these. Raises FilterFault."""
    if isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
        return _numbers(left, right)
    if BeyondCalendar in (type(left), type(right)):
        return _any_time(left), _any_time(right)
    if isinstance(left, str) and isinstance(right, date):
        left = _as(right, left)
    elif isinstance(right, str) and isinstance(left, date):
        right = _as(left, right)
    if isinstance(left, datetime) and isinstance(right, datetime):
        if (left.tzinfo is None) is not (right.tzinfo is None):
            return _in_utc(left), _in_utc(right)
        return left, right
    if type(left) is not type(right):
        raise _unlike(left, right)
    return left, right


def _numbers(left: _Number, right: _Number) -> tuple[Any, Any]:
    nans = _is_nan(left), _is_nan(right)
    if any(nans):
        return nans  # in PostgreSQL's order: equal to itself, and above all others
    if isinstance(left, float) or isinstance(right, float):
        return _double(left), _double(right)
    return left, right


def _is_nan(number: _Number) -> bool:
    return number.is_nan() if isinstance(number, Decimal) else isinstance(number, float) and isnan(number)


def _double(number: _Number) -> _Number:
    """As a double; itself where it is beyond one: Python compares it with doubles as it is."""
    try:
        double = float(number)
    except OverflowError:
        return number
    return double if isfinite(double) else number


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _any_time(value: Any) -> Any:
    """A time, or a text as one, also beyond the calendar."""
    if isinstance(value, str):
        try:
            return BeyondCalendar(value)
        except ValueError:
            return _as(datetime.min, value)
    if not isinstance(value, date | BeyondCalendar):
        raise _unlike(BeyondCalendar("infinity"), value)
    return value


def _as(like_this: date, text: str) -> date:
    """A text as a time or a date."""
    try:
        return (datetime if isinstance(like_this, datetime) else date).fromisoformat(text)
    except (ValueError, OverflowError):
        raise FilterFault(
            "filter: a time is compared with a text that is none: write 2026-11-01 12:00:00"
        ) from None


def _unlike(left: Any, right: Any) -> FilterFault:
    return FilterFault(f"filter: {kind_of(left)} does not compare with {kind_of(right)}")


def kind_of(value: Any) -> str:
    """What a value is, for people."""
    return next((name for kinds, name in _KINDS if isinstance(value, kinds)), type(value).__name__)


def truth(value: Any) -> bool | None:
    """Of a column that is a condition by itself. Raises FilterFault."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value != 0
    raise FilterFault(f"filter: {kind_of(value)} is neither true nor false")
