"""Mapping of the source's column types to ClickHouse's. docs/handlers/clickhouse.md has the table."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from handlers.mysql.types import DECIMALS, INTEGERS, SYNONYMS, read_type

_MOST_DIGITS = 76
_MOMENT = "DateTime64(6, 'UTC')"
_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 32, "int": 32, "bigint": 64}
_INT64 = 1 << 63
_BY_NAME: Mapping[str, str] = {
    "bit": "UInt64",
    "serial": "UInt64",
    "year": "UInt16",
    "float": "Float64",
    "double": "Float64",
    "boolean": "Bool",
    "bool": "Int8",
    "date": "Date32",
    "datetime": _MOMENT,
    "timestamp": _MOMENT,
    "datetimeoffset": _MOMENT,
    "uuid": "UUID",
}


def column_type(type_text: str | None, value: Any, *, key: bool) -> str | None:
    """Return a column's type; None for a NULL without a type, which waits for its first value."""
    found = type_of(type_text) if type_text else _of_value(value)
    return found if key or found is None else f"Nullable({found})"


@lru_cache(maxsize=10_000)
def type_of(type_text: str) -> str:
    """Return the type for a source's type. Types without a counterpart become String."""
    read = read_type(type_text)
    name = "double" if type_text.lower().startswith("double ") else SYNONYMS.get(read.name, read.name)
    if name in INTEGERS:
        return f"{'U' if read.unsigned else ''}Int{_BITS[name]}"
    if name in DECIMALS:
        if not read.sizes or read.sizes[0] > _MOST_DIGITS:
            return "String"
        scale = read.sizes[1] if len(read.sizes) > 1 else 0
        return f"Decimal({max(read.sizes[0], scale)}, {scale})"
    return _BY_NAME.get(name, "String")


def _of_value(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return "Int64" if -_INT64 <= value < _INT64 else "String"
    return next((found for kind, found in _BY_KIND if isinstance(value, kind)), "String")


# The first match counts, because a datetime is also a date.
_BY_KIND = ((bool, "Bool"), (float, "Float64"), (datetime, _MOMENT), (date, "Date32"), (UUID, "UUID"))
