"""Values of rows compared as SQL compares them. No error holds a value."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from operator import eq, ge, gt, le, lt, ne
from typing import Any

__all__ = ["FilterFault", "compared", "like", "truth"]

_SIGNS: dict[str, Callable[[Any, Any], bool]] = {"=": eq, "<>": ne, ">": gt, ">=": ge, "<": lt, "<=": le}
_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    ((bool, int, float, Decimal), "a number"),
    (str, "a text"),
    (datetime, "a time"),
    (date, "a date"),
    (bytes, "bytes"),
)


class FilterFault(ValueError):
    """The condition cannot be decided for a row."""


def compared(sign: str, left: Any, right: Any) -> bool | None:
    """None where one is NULL. Raises FilterFault for values that do not compare."""
    if left is None or right is None:
        return None
    if type(left) is not type(right):
        left, right = _alike(left, right)
    try:
        return _SIGNS[sign](left, right)
    except TypeError:
        raise _unlike(left, right) from None


def _alike(left: Any, right: Any) -> tuple[Any, Any]:
    """Both as values that Python compares. Raises FilterFault."""
    numbers = isinstance(left, bool | int | float | Decimal), isinstance(right, bool | int | float | Decimal)
    if all(numbers):
        if isinstance(left, float) or isinstance(right, float):
            return float(left), float(right)
        return left, right
    if isinstance(left, str) and isinstance(right, date):
        return _as(right, left), right
    if isinstance(right, str) and isinstance(left, date):
        return left, _as(left, right)
    raise _unlike(left, right)


def _as(like_this: date, text: str) -> Any:
    """A text as a time or a date; without a zone it is in UTC."""
    try:
        if not isinstance(like_this, datetime):
            return date.fromisoformat(text)
        found = datetime.fromisoformat(text)
    except ValueError:
        raise FilterFault(
            "filter: a time is compared with a text that is none: write 2026-11-01 12:00:00"
        ) from None
    if like_this.tzinfo is None:
        return found if found.tzinfo is None else found.astimezone(UTC).replace(tzinfo=None)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _unlike(left: Any, right: Any) -> FilterFault:
    return FilterFault(f"filter: {_kind(left)} does not compare with {_kind(right)}")


def _kind(value: Any) -> str:
    return next((name for kinds, name in _KINDS if isinstance(value, kinds)), type(value).__name__)


def truth(value: Any) -> bool | None:
    """Of a column that is a condition by itself. Raises FilterFault."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value != 0
    raise FilterFault(f"filter: {_kind(value)} is neither true nor false")


def like(value: Any, pattern: Any) -> bool | None:
    """SQL's LIKE: % stands for any characters, _ for one, backslash takes their meaning from both.

    At most the product of both lengths in steps, whatever they hold. Raises FilterFault.
    """
    if value is None or pattern is None:
        return None
    if not isinstance(value, str) or not isinstance(pattern, str):
        other = pattern if isinstance(value, str) else value
        raise FilterFault(f"filter: LIKE compares texts, not {_kind(other)}")
    parts = _parts(pattern)
    at = place = 0
    star, resumed = -1, 0
    while at < len(value):
        if place < len(parts) and parts[place] == "%":
            star, resumed, place = place, at, place + 1
        elif place < len(parts) and parts[place] in ("_", "\\" + value[at]):
            at, place = at + 1, place + 1
        elif star >= 0:  # the last % takes one character more
            resumed += 1
            at, place = resumed, star + 1
        else:
            return False
    return all(part == "%" for part in parts[place:])


def _parts(pattern: str) -> list[str]:
    """%, _, or a character behind a backslash."""
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == "\\":
            parts.append("\\" + next(characters, "\\"))
        else:
            parts.append(character if character in "%_" else "\\" + character)
    return parts
