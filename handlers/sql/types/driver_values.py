"""Convert Python values to text and to the form that each driver needs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from handlers.values.bounds import BeyondCalendar, digits
from handlers.values.change_json import duration_text, json_text


class UnfitValue(ValueError):
    """A value that the column cannot store. The text gives the reason without the column's name."""


def text_of(value: Any) -> str:
    """Return the value as a text column stores it. Raises UnfitValue for bytes."""
    for kind, text in _TEXTS.items():
        if isinstance(value, kind):
            return text(value)
    raise UnfitValue(f"{type(value).__name__} cannot be written as text")


def _no_text(_: Any) -> str:
    raise UnfitValue("bytes do not fit into a text column; make it a bytes column")


# The first match counts: a bool is an int, and a datetime is a date.
_TEXTS: Mapping[type | tuple[type, ...], Callable[[Any], str]] = {
    str: str,
    bool: lambda value: "true" if value else "false",
    int: str,
    float: repr,
    Decimal: digits,
    (datetime, date, time, UUID, BeyondCalendar): str,
    timedelta: duration_text,
    (bytes, bytearray, memoryview): _no_text,
    # A tuple contains a set's labels, which contain no comma. A list comes from JSON.
    tuple: lambda value: ",".join(map(text_of, value)),
    (list, dict): json_text,
}


_Drivers = Mapping[type, Callable[[Any], Any]]


def _array_literal(value: Sequence[Any]) -> str:
    return "{" + ",".join(_array_item(item) for item in value) + "}"


def _array_item(item: Any) -> str:
    if item is None:
        return "NULL"
    if isinstance(item, list | tuple):
        return _array_literal(item)
    text = "\\x" + item.hex() if isinstance(item, bytes) else text_of(item)
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _exact(value: Decimal) -> str:
    return digits(value) if value.is_finite() else str(value)


_JSON: _Drivers = {list: json_text, dict: json_text}
_PLAIN: _Drivers = {date: str, time: str, timedelta: duration_text, UUID: str, BeyondCalendar: str}

# PostgreSQL gets every value as text and reads it by the column's type.
_POSTGRESQL: _Drivers = {
    **_JSON,
    **_PLAIN,
    int: str,
    bool: lambda value: "t" if value else "f",
    float: repr,
    Decimal: str,
    bytes: lambda value: "\\x" + value.hex(),
    datetime: datetime.isoformat,
    tuple: _array_literal,
    list: _array_literal,
}


def _beyond_mysql(value: BeyondCalendar) -> str:
    raise UnfitValue(
        f"{value} is beyond the years 1 to 9999: make it a text column, or name the table in "
        "debezium.null_beyond_calendar"
    )


# pymysql writes negative timedeltas wrong. Decimals of any size and datetimes need no conversion.
_MYSQL: _Drivers = {
    **_JSON,
    timedelta: duration_text,
    tuple: text_of,
    UUID: str,
    BeyondCalendar: _beyond_mysql,
}


_SQLITE: _Drivers = {
    **_JSON,
    **_PLAIN,
    int: lambda value: value if -(2**63) <= value < 2**63 else str(value),
    # SQLite converts NaN to NULL, so NaN is text, which a REAL column stores unchanged.
    float: lambda value: "NaN" if math.isnan(value) else value,
    bool: int,
    Decimal: _exact,
    # The format of SQLite's own functions. A fixed length makes texts sort like times.
    datetime: lambda value: value.replace(tzinfo=None).isoformat(" ", "microseconds"),
    tuple: text_of,
}


def _texts(value: Sequence[Any]) -> list[str | None]:
    return [None if item is None else text_of(item) for item in value]


def _beyond_duckdb(value: BeyondCalendar) -> str:
    """Put the era after the date, as DuckDB does."""
    date_, clock, era = re.fullmatch(r"(\S+)( \S+)??( BC)?", str(value)).groups("")  # type: ignore[union-attr] # it always matches
    return f"{date_}{era and ' (BC)'}{clock}"


# Text that the statement casts to the column's type, unchanged bytes, and lists of texts.
_DUCKDB: _Drivers = {
    **_JSON,
    **_PLAIN,
    int: str,
    bool: lambda value: "true" if value else "false",
    float: repr,
    Decimal: _exact,
    datetime: datetime.isoformat,
    BeyondCalendar: _beyond_duckdb,
    tuple: _texts,
    list: _texts,
}
DRIVERS: Mapping[str, _Drivers] = {
    "postgresql": _POSTGRESQL,
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
    "sqlite": _SQLITE,
    "duckdb": _DUCKDB,
}
