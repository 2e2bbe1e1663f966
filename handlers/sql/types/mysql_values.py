"""Convert values to what a column of MySQL or MariaDB returns. Only those values find its row."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from handlers.mysql.values import single
from handlers.sql.types.driver_values import UnfitValue, text_of
from handlers.sql.types.losses import is_double
from handlers.values.change_json import json_text

_CENTURY = 100
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"0": "\0", "n": "\n", "r": "\r"}
_LONG_NUMBER = re.compile(r"\d[\d.]{15}|\d[eE]")  # in JSON, perhaps within a text: a double may round it
_JSON_NUMBER = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|(-?\d[-+.\deE]*)', re.DOTALL)  # group 1; else a text
_BEYOND = re.compile("[\U00010000-\U0010ffff]")


def as_kept(type_: sa.types.TypeEngine[Any]) -> Callable[[Any], Any] | None:
    """Return the converter of values for a column, or None if it needs none. It raises UnfitValue."""
    make = next((make for of, make in _MAKERS if isinstance(type_, of)), None)
    return None if make is None else make(type_)


def _single(value: Any, scale: int | None) -> Any:
    """The server compares FLOAT with a text as doubles, so round to a single first."""
    if "_" in str(value):
        raise UnfitValue(f"{value} is not a number")
    try:
        return single(float(value) if scale is None else round(float(value), scale))
    except (ValueError, TypeError):
        return value  # the server refuses it


def _exact(value: Any) -> Any:
    """The server would compare a text or a float with a long number as doubles, so use a Decimal."""
    if not isinstance(value, str | float):
        return value
    if "_" in str(value):  # Python would read 1_1 as a number
        raise UnfitValue(f"{value} is not a number")
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return value
    return number if math.isfinite(number) else value


def _number_of_bits(value: Any) -> Any:
    """Convert bits to a number: the server would read digits as bytes."""
    if isinstance(value, bytes):
        return int.from_bytes(value)
    if isinstance(value, str) and value and not value.strip("01"):
        return int(value, 2)
    if not isinstance(value, int | float | Decimal) or value < 0 or value % 1:  # it would round
        raise UnfitValue(f"a value of {type(value).__name__} is not a bit string")
    return int(value)


def _year(value: Any) -> Any:
    if isinstance(value, int | str) and 0 < _whole(value) < _CENTURY:
        raise UnfitValue(f"a YEAR column would turn {value} into a year of four digits")
    return value


def _whole(text: int | str) -> int:
    try:
        return int(text)
    except ValueError:
        return 0  # the server, or the column's kind, refuses it


def _padded(value: Any, length: int) -> Any:
    given = value.encode() if isinstance(value, str) else value
    return given.ljust(length, b"\0") if isinstance(given, bytes | bytearray) else given


def _places(told: Sequence[str]) -> Mapping[str, int]:
    """Return label (in the form of `_shown`) -> index. `told` are the labels from SHOW CREATE TABLE."""
    labels = (_ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), label) for label in told)
    return {label: place for place, label in enumerate(labels)}


def _shown(label: str) -> str:
    """SHOW CREATE TABLE writes a question mark for each character beyond 16 bits."""
    return _BEYOND.sub("?", label)


def _label(value: Any, places: Mapping[str, int]) -> str:
    """Refuse other labels: the server reads a number as a label's index and ignores case."""
    text = text_of(value)
    if _shown(text) not in places:
        raise UnfitValue(f"{text} is not one of the column's labels")
    return text


def _labels(value: Any, places: Mapping[str, int]) -> str:
    """Return the labels in the order of the column's type. Raises UnfitValue for an unknown label."""
    text = text_of(value)
    given = dict.fromkeys(text.split(",") if text else ())
    if not places.keys() >= set(map(_shown, given)):
        raise UnfitValue(f"{text} has a label that the column does not have")
    return ",".join(sorted(given, key=lambda label: places[_shown(label)]))


def _json(value: Any) -> str:
    """MySQL stores numbers as doubles unless they are 64-bit integers. (MariaDB's JSON is text.)"""
    text = value if isinstance(value, str) else json_text(value)
    for found in _JSON_NUMBER.finditer(text) if _LONG_NUMBER.search(text) else ():
        number = found[1]
        if number and not _is_kept(number):
            raise UnfitValue(f"MySQL would round the number {number:.60} in it; make it a LONGTEXT column")
    return text


def _is_kept(number: str) -> bool:
    try:
        exact = Decimal(number)
    except InvalidOperation:  # its exponent is out of range
        return False
    return is_double(exact) or (number.lstrip("-").isdigit() and -(2**63) <= exact < 2**64)


# The first match counts: a Float is a Numeric, and an Enum is a String.
_MAKERS: Sequence[tuple[type, Callable[[Any], Callable[[Any], Any] | None]]] = (
    (mysql.FLOAT, lambda type_: partial(_single, scale=type_.scale)),
    (sa.Float, lambda _: None),
    (sa.Numeric, lambda _: _exact),
    (mysql.JSON, lambda _: _json),
    (mysql.BIT, lambda _: _number_of_bits),
    (mysql.YEAR, lambda _: _year),
    (sa.BINARY, lambda type_: partial(_padded, length=type_.length or 1)),
    (mysql.ENUM, lambda type_: partial(_label, places=_places(type_.enums))),
    (mysql.SET, lambda type_: partial(_labels, places=_places(type_.values))),
    (sa.CHAR, lambda _: lambda value: value.rstrip(" ") if isinstance(value, str) else value),
)
