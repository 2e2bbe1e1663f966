"""Comparison of row values with the semantics of SQL, including LIKE. No error contains a value."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from math import isfinite, isnan
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from handlers.values.bounds import BeyondCalendar

_SIGNS: dict[str, Callable[[Any, Any], bool]] = {"=": eq, "<>": ne, ">": gt, ">=": ge, "<": lt, "<=": le}
_Number = bool | int | float | Decimal
NUMBERS = (bool, int, float, Decimal)
_NOT_ALL_ALIKE = frozenset({float, Decimal, datetime})
"""Types with values that Python does not compare like SQL: NaN, and times with and without a zone."""
_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (NUMBERS, "a number"),
    (str, "a text"),
    ((datetime, BeyondCalendar), "a time"),
    (date, "a date"),
    (bytes, "bytes"),
)


class FilterFault(ValueError):
    """The condition cannot be evaluated for a row."""


def compared(sign: str, left: Any, right: Any) -> bool | None:
    """Compare two values; None if one is NULL. Raises FilterFault if they are not comparable."""
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
    """Convert two values so that Python compares them as SQL does. Raises FilterFault."""
    if isinstance(left, NUMBERS) and isinstance(right, NUMBERS):
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
        return nans  # as in PostgreSQL: NaN equals NaN, and is greater than all other numbers
    if isinstance(left, float) or isinstance(right, float):
        return _double(left), _double(right)
    return left, right


def _is_nan(number: _Number) -> bool:
    return number.is_nan() if isinstance(number, Decimal) else isinstance(number, float) and isnan(number)


def _double(number: _Number) -> _Number:
    """Convert to a double. A number out of range stays: Python compares it with doubles correctly."""
    try:
        double = float(number)
    except OverflowError:
        return number
    return double if isfinite(double) else number


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _any_time(value: Any) -> Any:
    """Return a time, or read one from a text, including times outside the calendar."""
    if isinstance(value, str):
        try:
            return BeyondCalendar(value)
        except ValueError:
            return _as(datetime.min, value)
    if not isinstance(value, date | BeyondCalendar):
        raise _unlike(BeyondCalendar("infinity"), value)
    return value


def _as(like_this: date, text: str) -> date:
    """Read a text as a time or a date."""
    try:
        return (datetime if isinstance(like_this, datetime) else date).fromisoformat(text)
    except (ValueError, OverflowError):
        raise FilterFault(
            "filter: a time is compared with a text that is not a time: write 2026-11-01 12:00:00"
        ) from None


def _unlike(left: Any, right: Any) -> FilterFault:
    return FilterFault(f"filter: {kind_named(left)} cannot be compared with {kind_named(right)}")


def kind_named(value: Any) -> str:
    """Name the kind of a value, for messages."""
    return next((name for kinds, name in _KINDS if isinstance(value, kinds)), type(value).__name__)


def truth(value: Any) -> bool | None:
    """Return the truth of a column that is used as a condition. Raises FilterFault."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value != 0
    raise FilterFault(f"filter: {kind_named(value)} is neither true nor false")


# ---- LIKE

MOST_STEPS = 50_000_000
"""The longest product of both lengths for a pattern with `_`, about a second. The limit is needed: a row may
contain both texts."""
_SHORT = 100
"""Characters of a pattern for which the text may have any length."""
_LEAST = 5_000  # the least length that counts for a text: a long pattern with _ takes time by itself

_PIECES = re.compile(r"%+|_|\\?(.)", re.DOTALL)


def like(value: Any, pattern: Any) -> bool | None:
    """Evaluate SQL's LIKE: % matches any characters, _ matches one, and a backslash escapes both.

    The time is the sum of both lengths. With _ between two %, it is up to their product. Raises FilterFault
    if that exceeds MOST_STEPS, and for values that are not texts."""
    if value is None or pattern is None:
        return None
    if not isinstance(value, str) or not isinstance(pattern, str):
        other = pattern if isinstance(value, str) else value
        raise FilterFault(f"filter: LIKE compares text, not {kind_named(other)}")
    if len(pattern) > _SHORT and "_" in pattern and max(len(value), _LEAST) * len(pattern) > MOST_STEPS:
        raise FilterFault(
            f"filter: LIKE takes more than {MOST_STEPS} steps for a row, because its pattern contains _ and "
            "pattern and text are long; remove _ or shorten the pattern"
        )
    (find, begin), *others = _parts(pattern)
    if not others:
        return len(value) == begin and find(value, 0, begin) == 0
    find_last, length = others.pop()
    end = len(value) - length
    if begin > end or find(value, 0, begin) < 0 or find_last(value, end, len(value)) < 0:
        return False
    for find, length in others:  # its first place is the best
        if (place := find(value, begin, end)) < 0:
            return False
        begin = place + length
    return True


@lru_cache(maxsize=256)
def _parts(pattern: str) -> list[tuple[Callable[[str, int, int], int], int]]:
    """Split a pattern at each %. Return how to find each part in a text, and its length."""
    parts: list[list[str]] = [[]]
    for piece in _PIECES.finditer(pattern):
        if piece[0][0] == "%":
            parts.append([])
        else:
            parts[-1].append("" if piece[0] == "_" else piece[1])
    return [(_finding(part), len(part)) for part in parts]


def _finding(part: list[str]) -> Callable[[str, int, int], int]:
    """Return how to find a part, whose `_` are empty. Only with `_` is it worth the time to compile it."""
    text = "".join(part)
    if len(text) == len(part):
        return lambda value, begin, end: value.find(text, begin, end)
    search = re.compile("".join(re.escape(each) or "." for each in part), re.DOTALL).search
    return lambda value, begin, end: -1 if (found := search(value, begin, end)) is None else found.start()
