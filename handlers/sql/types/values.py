"""Python values as the drivers take them, by what kind of column they go into."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, auto
from typing import Any
from uuid import UUID

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from handlers.change_json import json_value
from handlers.decimals import digits
from handlers.sql.types.column_types import Unsigned64

__all__ = ["Kind", "UnfitValue", "duration_text", "encode", "kind_of", "text_of"]


_SHOWN = 40


class UnfitValue(ValueError):
    """A value that the column cannot take; says why, without the column's name."""


class Kind(Enum):
    """What a column of the target holds."""

    INTEGER = auto()
    DECIMAL = auto()
    FLOAT = auto()
    BOOLEAN = auto()
    TEXT = auto()
    BYTES = auto()
    DATE = auto()
    DATETIME = auto()
    """Also with a zone: values are in UTC, and so is every session."""
    TIME = auto()
    JSON = auto()
    ARRAY = auto()
    BITS = auto()
    OTHER = auto()


# The first that fits: a Float is a Numeric, an Enum a String.
_KINDS: Sequence[tuple[tuple[type, ...], Kind]] = (
    ((sa.Boolean,), Kind.BOOLEAN),
    ((sa.Integer, mysql.YEAR), Kind.INTEGER),
    ((sa.Float,), Kind.FLOAT),
    ((sa.Numeric,), Kind.DECIMAL),
    ((sa.JSON,), Kind.JSON),
    ((mysql.BIT, postgresql.BIT), Kind.BITS),
    ((sa.String, sa.Uuid), Kind.TEXT),
    ((sa.types._Binary,), Kind.BYTES),
    ((sa.DateTime,), Kind.DATETIME),
    ((sa.Date,), Kind.DATE),
    ((sa.Time, sa.Interval, postgresql.INTERVAL), Kind.TIME),
    ((sa.ARRAY,), Kind.ARRAY),
    ((Unsigned64,), Kind.OTHER),
)


def kind_of(type_: sa.types.TypeEngine[Any]) -> Kind:
    """The kind of a reflected column type; OTHER for what is not known."""
    return next((kind for types, kind in _KINDS if isinstance(type_, types)), Kind.OTHER)


def duration_text(value: timedelta) -> str:
    """`[-]HH:MM:SS[.ffffff]`, hours beyond 24: what MySQL's TIME and PostgreSQL's interval read.

    >>> duration_text(timedelta(hours=-838, minutes=-59, seconds=-59))
    '-838:59:59'
    """
    microseconds = value // timedelta(microseconds=1)
    sign = "-" if microseconds < 0 else ""
    seconds, microseconds = divmod(abs(microseconds), 1_000_000)
    fraction = f".{microseconds:06d}" if microseconds else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"


def text_of(value: Any) -> str:
    """A value as text: what a text column holds of it. Raises UnfitValue for bytes."""
    for kind, text in _TEXTS.items():
        if isinstance(value, kind):
            return text(value)
    raise UnfitValue(f"{type(value).__name__} has no form as text")


def _json(value: Any) -> str:
    """As `handlers.change_json` writes values: NaN and infinities as text, bytes as {"base64": ...}."""
    return msgspec.json.encode(json_value(value)).decode("utf-8")


def _no_text(_: Any) -> str:
    raise UnfitValue("bytes do not go into a column of text; make it one of bytes")


# The first that fits: a bool is an int, a datetime a date.
_TEXTS: Mapping[type | tuple[type, ...], Callable[[Any], str]] = {
    str: str,
    bool: lambda value: "true" if value else "false",
    int: str,
    float: repr,
    Decimal: digits,
    (datetime, date, time, UUID): str,
    timedelta: duration_text,
    (bytes, bytearray, memoryview): _no_text,
    # A set's labels: none of them holds a comma. A list comes from JSON.
    tuple: lambda value: ",".join(map(text_of, value)),
    (list, dict): _json,
}


def _whole(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            shown = value if len(value) <= _SHOWN else value[:_SHOWN] + "..."
            raise UnfitValue(
                f"{shown!r} is no whole number; if the source's column has another type by now, change it in "
                "the target, too"
            ) from None
    if isinstance(value, Decimal | float) and value == value // 1:
        return int(value)
    raise UnfitValue("it is no whole number")


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
    if isinstance(value, datetime):
        if value.time() != time():
            raise UnfitValue("it has a time of day, which the column would lose")
        return value.date()
    return value


def _labels(value: Any) -> Any:
    if isinstance(value, str):
        return tuple(value.split(",")) if value else ()
    return value


_NUMBERS = frozenset((int, float, Decimal, str))

# Kind -> types that need nothing done, and what is done to the others.
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
    Kind.JSON: (frozenset((str,)), lambda value: value if type(value) is str else _json(value)),
    Kind.ARRAY: (frozenset((tuple, list)), _labels),
    Kind.BITS: (frozenset((int, str)), lambda value: int(value) if isinstance(value, bool) else value),
    Kind.OTHER: (frozenset(), lambda value: value),
}

_Drivers = Mapping[type, Callable[[Any], Any]]


def _array_literal(value: Sequence[Any]) -> str:
    return "{" + ",".join(_array_item(item) for item in value) + "}"


def _array_item(item: Any) -> str:
    if item is None:
        return "NULL"
    if isinstance(item, list | tuple):
        return _array_literal(item)
    text = text_of(item).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _exact(value: Decimal) -> str:
    return digits(value) if value.is_finite() else str(value)


# What PostgreSQL reads from text, whatever the column's type; every value goes to it as text.
_POSTGRESQL: _Drivers = {
    int: str,
    bool: lambda value: "t" if value else "f",
    float: repr,
    Decimal: str,
    bytes: lambda value: "\\x" + value.hex(),
    datetime: datetime.isoformat,
    date: str,
    time: str,
    timedelta: duration_text,
    UUID: str,
    tuple: _array_literal,
    list: _array_literal,
    dict: _json,
}
# pymysql writes a negative timedelta wrong; a Decimal of any size and a datetime it writes well.
_MYSQL: _Drivers = {timedelta: duration_text, tuple: text_of, list: _json, dict: _json, UUID: str}


def _lite_integer(value: int) -> int | str:
    return value if -(2**63) <= value < 2**63 else str(value)


def _lite_float(value: float) -> float | str:
    """SQLite makes NULL of NaN: there it is text, which a REAL column takes as it is."""
    return "NaN" if math.isnan(value) else value


_SQLITE: _Drivers = {
    int: _lite_integer,
    float: _lite_float,
    bool: int,
    Decimal: _exact,
    # As SQLite's own functions read it, and always as long: texts compare as the times do.
    datetime: lambda value: value.replace(tzinfo=None).isoformat(" ", "microseconds"),
    date: str,
    time: str,
    timedelta: duration_text,
    tuple: text_of,
    list: _json,
    dict: _json,
    UUID: str,
}
_DRIVERS: Mapping[str, _Drivers] = {
    "postgresql": _POSTGRESQL,
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
    "sqlite": _SQLITE,
}

_NONES = {type(None)}


def encode(values: Sequence[Any], kind: Kind, dialect: str, types: set[type] | None = None) -> Sequence[Any]:
    """The values of one column as the driver takes them; of PostgreSQL: as text.

    `types`: of the values, None's too, if they are known. Raises UnfitValue.
    """
    types = set(map(type, values)) if types is None else types
    native, convert = _COMMON[kind]
    if not types - _NONES <= native and kind is not Kind.OTHER:
        values = [None if value is None else convert(value) for value in values]
        types = set(map(type, values))
    drivers = _DRIVERS[dialect]
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
        raise UnfitValue("it holds the character NUL (U+0000), which PostgreSQL has in no text")
