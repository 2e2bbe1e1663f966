"""Values of MySQL and MariaDB as a column gives them back: its row is not found by any other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from handlers.mysql.values import single
from handlers.sql.types.driver_values import UnfitValue, text_of

_CENTURY = 100


def as_kept(type_: sa.types.TypeEngine[Any]) -> Callable[[Any], Any] | None:
    """What makes of a value what a column of the type keeps; it raises UnfitValue. None: it is the same."""
    make = next((make for of, make in _MAKERS if isinstance(type_, of)), None)
    return None if make is None else make(type_)


def _single(value: Any, scale: int | None) -> Any:
    """A column of FLOAT is compared as a double with what a text says."""
    try:
        return single(float(value) if scale is None else round(float(value), scale))
    except (ValueError, TypeError):
        return value  # the server refuses it


def _exact(value: Any) -> Any:
    """A text, or a float, would be compared with a number of many digits as a double."""
    if not isinstance(value, str | float):
        return value
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return value
    return number if math.isfinite(number) else value


def _number_of_bits(value: Any) -> Any:
    """The server would take the digits for bytes."""
    try:
        return int(value, 2) if isinstance(value, str) else value
    except ValueError:
        raise UnfitValue("it is no bit string") from None


def _year(value: Any) -> Any:
    if isinstance(value, int) and 0 < value < _CENTURY:
        raise UnfitValue(f"of {value} a column of YEAR would make a year of four digits")
    return value


def _padded(value: Any, length: int) -> Any:
    return value.ljust(length, b"\0") if isinstance(value, bytes | bytearray) else value


def _label(value: Any, labels: frozenset[str]) -> str:
    """The server takes the text of a number for the number of a label, and another case for the label's."""
    text = text_of(value)
    if text not in labels:
        raise UnfitValue(f"{text} is none of the column's labels")
    return text


def _labels(value: Any, order: tuple[str, ...]) -> str:
    """In the order of the column's type. Raises UnfitValue for a label that it does not have."""
    text = text_of(value)
    given = text.split(",") if text else []
    if not set(given) <= set(order):
        raise UnfitValue(f"{text} has a label that the column does not have")
    return ",".join(label for label in order if label in given)


def _without_padding(value: Any) -> Any:
    return value.rstrip(" ") if isinstance(value, str) else value


# The first that fits: a Float is a Numeric, an Enum a String.
_MAKERS: Sequence[tuple[type, Callable[[Any], Callable[[Any], Any] | None]]] = (
    (mysql.FLOAT, lambda type_: partial(_single, scale=type_.scale)),
    (sa.Float, lambda _: None),
    (sa.Numeric, lambda _: _exact),
    (mysql.BIT, lambda _: _number_of_bits),
    (mysql.YEAR, lambda _: _year),
    (sa.BINARY, lambda type_: partial(_padded, length=type_.length or 1)),
    (mysql.ENUM, lambda type_: partial(_label, labels=frozenset(type_.enums))),
    (mysql.SET, lambda type_: partial(_labels, order=tuple(type_.values))),
    (sa.CHAR, lambda _: _without_padding),
)
