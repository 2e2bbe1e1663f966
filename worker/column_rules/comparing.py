"""Values of rows compared as SQL compares them. No error holds a value."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from operator import eq, ge, gt, le, lt, ne
from typing import Any

__all__ = ["FilterFault", "compared", "kind_of", "truth"]

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
