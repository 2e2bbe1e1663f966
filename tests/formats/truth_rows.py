"""Rows of the source's own dump as the values that the documentation promises; when values are the same."""

from __future__ import annotations

import base64
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
from captured import truth

__all__ = ["ABSENT", "Row", "expected_row", "same"]

ABSENT = "absent"  # of a column: this row does not have it

Row = dict[str, Any]


def expected_row(table: str, row: Row) -> Row:
    """Dates that no calendar has are None."""
    columns = truth()[table].columns
    return {name: _expected(value, columns[name]) for name, value in row.items()}


def _expected(value: Any, column_type: str) -> Any:  # noqa: PLR0911 - one return a type
    name = column_type.partition("(")[0].partition(" ")[0]
    if value is None:
        return None
    if isinstance(value, dict) and "json" in value:
        return msgspec.json.format(value["json"], indent=-1)
    if isinstance(value, dict):
        srid = value["srid"].to_bytes(4, "little") if "srid" in value else b""
        return srid + base64.b64decode(value["base64"])
    if name in ("date", "datetime", "timestamp") and "-00" in value:
        return None
    match name:
        case "decimal":
            return Decimal(value)
        case "set":
            return tuple(value.split(",")) if value else ()
        case "time":
            sign, hours, minutes, seconds = re.fullmatch(r"(-?)(\d+):(\d+):([\d.]+)", value).groups()  # type: ignore[union-attr]  # every time is so
            micros = round(Decimal(seconds) * 1_000_000)
            length = timedelta(hours=int(hours), minutes=int(minutes), microseconds=micros)
            return -length if sign else length
        case "date":
            return date.fromisoformat(value)
        case "datetime":
            return datetime.fromisoformat(value)
        case "timestamp":
            return datetime.fromisoformat(value).replace(tzinfo=UTC)
        case "float" | "double":
            return float(value)
    return value


def same(found: Any, expected: Any) -> bool:
    """Equal, of the same type, and with the same digits (9061.0 is not 9061.00)."""
    if type(found) is not type(expected):
        return False
    if isinstance(found, tuple):  # a set, whose labels changed their order in the table's type
        return sorted(found) == sorted(expected)
    # Of floats the server's dump dropped the sign of zero.
    return bool(found == expected) and (isinstance(found, float) or str(found) == str(expected))
