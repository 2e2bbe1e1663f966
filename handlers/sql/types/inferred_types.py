"""Column types for sources that tell none: from the values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID


def inferred_type(value: Any) -> str:
    """A type text, as a source would tell it, that holds values such as this one; for None: a text."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        fits = -(2**63) <= value < 2**63
        return "bigint" if fits else "bigint unsigned" if 0 <= value < 2**64 else "decimal(65,0)"
    if isinstance(value, datetime):
        return "datetime(6)" if value.tzinfo is None else "timestamp(6)"
    return next((text for kinds, text in _BY_KIND.items() if isinstance(value, kinds)), "longtext")


_BY_KIND: Mapping[type | tuple[type, ...], str] = {
    float: "double",
    Decimal: "decimal",
    date: "date",
    timedelta: "time(6)",
    (bytes, bytearray, memoryview): "longblob",
    UUID: "uuid",
    tuple: "set",
    (dict, list): "json",
}
