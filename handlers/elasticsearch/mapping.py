"""Mapping of the source's column types to fields. `_source` has each value as in the source. Searches use
exact values, except for times, which are searched by the millisecond.

docs/handlers/elasticsearch.md has the table."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

import msgspec

from handlers.api import Row
from handlers.mysql.types import BYTES, DECIMALS, INTEGERS, SHAPES, SYNONYMS, read_type
from handlers.values.bounds import BeyondCalendar, digits
from handlers.values.change_json import json_value

Field = Mapping[str, Any]

ORIGIN = "_binlane"
"""The field of each document that contains the origin of its row."""
ORIGIN_FIELD: Field = {
    "properties": {
        "version": {"type": "long"},
        "partition": {"type": "keyword"},
        "time": {"type": "date", "format": "epoch_millis"},
    }
}

_MOST_DOUBLE_DIGITS = 15
"""Most digits of decimals that a double distinguishes."""
_INT64 = 1 << 63

_LONG: Field = {"type": "long"}
_UNSIGNED: Field = {"type": "unsigned_long"}
_DOUBLE: Field = {"type": "double"}
_BOOLEAN: Field = {"type": "boolean"}
_TEXT: Field = {"type": "text"}
_BINARY: Field = {"type": "binary"}
_DATE: Field = {"type": "date", "format": "strict_date"}
_TIME: Field = {"type": "date", "format": "strict_date_optional_time"}
# A term has at most 32,766 bytes. Longer values are stored, but searches do not find them.
_KEYWORD: Field = {"type": "keyword", "ignore_above": 8191}
# Stored but not searchable, so it accepts any content.
_OBJECT: Field = {"type": "object", "enabled": False}

_LONG_TEXTS = ("tinytext", "text", "mediumtext", "longtext")


def fields_of(columns: Iterable[tuple[str, str | None, Any]]) -> dict[str, Field]:
    """Return column -> field. `columns`: (column, type text, value)."""
    found = ((column, _field(type_text, value)) for column, type_text, value in columns)
    return {column: field for column, field in found if field is not None}


def json_document(row: Row, types: Mapping[str, str] | None) -> dict[str, Any]:
    """Convert a row to a document. Raises TypeError or BeyondBounds if a value has no JSON form."""
    return {
        column: value
        if type(value) in (str, bool, type(None))
        else _value(value, "" if types is None else types.get(column, ""))
        for column, value in row.items()
    }


def _value(value: Any, type_text: str) -> Any:
    if type(value) is int:
        return value if -_INT64 <= value < 2 * _INT64 else str(value)
    if isinstance(value, Decimal):
        text = digits(value)
        is_number = value.is_finite() and _of_type(type_text) is _DOUBLE
        return msgspec.Raw(text.encode()) if is_number else text
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, BeyondCalendar) and _of_type(type_text) in (_DATE, _TIME):
        raise TypeError(
            f"{value} is beyond the years 1 to 9999: name the table in debezium.null_beyond_calendar"
        )
    return json_value(value)


def _field(type_text: str | None, value: Any) -> Field | None:
    if isinstance(value, Mapping):
        return _OBJECT
    if type_text:
        return _of_type(type_text)
    return None if value is None else _of_value(value)


def _of_value(value: Any) -> Field:
    if isinstance(value, bool):
        return _BOOLEAN
    if isinstance(value, int):
        return _LONG if -_INT64 <= value < _INT64 else _UNSIGNED if 0 <= value < 2 * _INT64 else _KEYWORD
    if isinstance(value, float):
        return _DOUBLE
    if isinstance(value, datetime):
        return _TIME
    if isinstance(value, date):
        return _DATE
    return _BINARY if isinstance(value, bytes | bytearray | memoryview) else _KEYWORD


@lru_cache(maxsize=10_000)
def _of_type(type_text: str) -> Field:
    read = read_type(type_text)
    name = "double" if type_text.lower().startswith("double ") else SYNONYMS.get(read.name, read.name)
    if name in INTEGERS:
        return _UNSIGNED if name == "bigint" and read.unsigned else _LONG
    if name in ("bit", "serial"):
        return _UNSIGNED if name == "serial" or (read.sizes and read.sizes[0] > 63) else _LONG
    if name in DECIMALS:
        return _DOUBLE if read.sizes and read.sizes[0] <= _MOST_DOUBLE_DIGITS else _KEYWORD
    if name in (*BYTES, *SHAPES, "vector"):
        return _BINARY
    if name in _LONG_TEXTS:
        return _TEXT
    return _BY_NAME.get(name, _KEYWORD)


_BY_NAME: Mapping[str, Field] = {
    "year": _LONG,
    "float": _DOUBLE,
    "double": _DOUBLE,
    "boolean": _BOOLEAN,
    "bool": _LONG,
    "date": _DATE,
    "datetime": _TIME,
    "timestamp": _TIME,
    "datetimeoffset": _TIME,
    # PostgreSQL's arrays and maps have this type too. Only this field accepts a map after a NULL.
    "json": _OBJECT,
    "jsonb": _OBJECT,
}
