"""Convert Python values for the drivers, by the kind of their column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, auto
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from handlers.sql.types.column_types import Unsigned64
from handlers.sql.types.driver_values import DRIVERS, UnfitValue, text_of
from handlers.sql.types.postgresql_types import ShortText
from handlers.values.bounds import BeyondCalendar
from handlers.values.change_json import json_text

_SHOWN = 40


class Kind(Enum):
    """The kind of values in a column of the target."""

    INTEGER = auto()
    DECIMAL = auto()
    FLOAT = auto()
    BOOLEAN = auto()
    TEXT = auto()
    BYTES = auto()
    DATE = auto()
    DATETIME = auto()
    """With or without a zone: values and sessions are in UTC."""
    TIME = auto()
    JSON = auto()
    ARRAY = auto()
    BITS = auto()
    OTHER = auto()


# The first match counts: a Float is a Numeric, and an Enum is a String.
_KINDS: Sequence[tuple[tuple[type, ...], Kind]] = (
    ((sa.Boolean,), Kind.BOOLEAN),
    ((sa.Integer, mysql.YEAR), Kind.INTEGER),
    ((sa.Float,), Kind.FLOAT),
    ((sa.Numeric,), Kind.DECIMAL),
    ((sa.JSON,), Kind.JSON),
    ((mysql.BIT, postgresql.BIT), Kind.BITS),
    ((sa.String, sa.Uuid, ShortText), Kind.TEXT),
    ((sa.types._Binary,), Kind.BYTES),
    ((sa.DateTime,), Kind.DATETIME),
    ((sa.Date,), Kind.DATE),
    ((sa.Time, sa.Interval, postgresql.INTERVAL), Kind.TIME),
    ((sa.ARRAY,), Kind.ARRAY),
    ((Unsigned64,), Kind.OTHER),
)


def kind_of(type_: sa.types.TypeEngine[Any]) -> Kind:
    """Return the kind of a reflected column type; OTHER if it is unknown."""
    return next((kind for types, kind in _KINDS if isinstance(type_, types)), Kind.OTHER)


def _whole(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str):
        try:
            number = int(value)
        except ValueError:
            number = None
        if str(number) != value:  # 007 is a different text and perhaps another row's key
            shown = value if len(value) <= _SHOWN else value[:_SHOWN] + "..."
            raise UnfitValue(
                f"{shown!r} is not a whole number; if the type of the source's column changed, change it in "
                "the target, too"
            )
        return number
    if isinstance(value, Decimal | float) and value == value // 1:
        return int(value)
    raise UnfitValue("it is not a whole number")


def _truth(value: Any) -> Any:
    if value in (0, 1):
        return bool(value)
    raise UnfitValue("it is neither true nor false")


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise UnfitValue(f"{type(value).__name__} is not bytes")


def _date(value: Any) -> Any:
    if (isinstance(value, datetime) and value.time() != time()) or (
        isinstance(value, BeyondCalendar) and value.has_clock
    ):
        raise UnfitValue("it has a time of day, which the column would lose")
    return value.date() if isinstance(value, datetime) else value


def _labels(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value[:1] + value[-1:] in ("{}", "[]"):
        raise UnfitValue("it is the text of an array, but the ends of its items are unknown: send a list")
    return tuple(value.split(",")) if value else ()


_NUMBERS = frozenset((int, float, Decimal, str))

# Kind -> types that need no conversion, and the conversion of the others.
_COMMON: Mapping[Kind, tuple[frozenset[type], Callable[[Any], Any]]] = {
    Kind.INTEGER: (frozenset((int,)), lambda value: value if type(value) is int else _whole(value)),
    Kind.DECIMAL: (_NUMBERS, lambda value: int(value) if isinstance(value, bool) else value),
    Kind.FLOAT: (_NUMBERS, lambda value: int(value) if isinstance(value, bool) else value),
    Kind.BOOLEAN: (frozenset((bool,)), lambda value: value if type(value) is bool else _truth(value)),
    Kind.TEXT: (frozenset((str,)), text_of),
    Kind.BYTES: (frozenset((bytes,)), lambda value: value if type(value) is bytes else _bytes(value)),
    Kind.DATE: (frozenset((date, str)), _date),
    Kind.DATETIME: (frozenset((datetime, date, str)), lambda value: value),
    Kind.TIME: (frozenset((str, time, timedelta)), lambda value: value),
    Kind.JSON: (frozenset((str,)), lambda value: value if type(value) is str else json_text(value)),
    Kind.ARRAY: (frozenset((tuple, list)), _labels),
    Kind.BITS: (frozenset((int, str)), lambda value: int(value) if isinstance(value, bool) else value),
    Kind.OTHER: (frozenset(), lambda value: value),
}

_NONES = {type(None)}
_NO_TIMES = frozenset((Kind.DECIMAL, Kind.FLOAT, Kind.TIME, Kind.BITS))


def encode(values: Sequence[Any], kind: Kind, dialect: str, types: set[type] | None = None) -> Sequence[Any]:
    """Encode the values of one column for the driver: as text for PostgreSQL.

    `types` are the values' types (including None's), if known. Raises UnfitValue."""
    types = set(map(type, values)) if types is None else types
    native, convert = _COMMON[kind]
    if BeyondCalendar in types and kind in _NO_TIMES:
        raise UnfitValue("it is a time")  # else a column of numbers would store its own infinity
    if not types - _NONES <= native and kind is not Kind.OTHER:
        values = [None if value is None else convert(value) for value in values]
        types = set(map(type, values))
    drivers = DRIVERS[dialect]
    if dialect == "postgresql" and str in types:
        _refuse_nul(values)
    if len(types) > 2 or (len(types) == 2 and not types & _NONES):
        return [form(value) if (form := drivers.get(type(value))) else value for value in values]
    forms = [form for form in map(drivers.get, types) if form is not None]
    if not forms:
        return values
    (form,) = forms
    return (
        [None if value is None else form(value) for value in values]
        if types & _NONES
        else list(map(form, values))
    )


def _refuse_nul(values: Sequence[Any]) -> None:
    if "\0" in "".join([value for value in values if type(value) is str]):
        raise UnfitValue("it contains the character NUL (U+0000), which PostgreSQL does not allow in text")
