"""Column values as Canal 1.1.7 writes them into flat messages: all are text or null."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from handlers.mysql.types import MySQLType, read_type

# java.sql.Types as Canal reports them. An enum is its index (an int), a set its bit mask.
_SQL_TYPES = {
    "tinyint": -6, "smallint": 5, "mediumint": 4, "int": 4, "bigint": -5, "decimal": 3, "double": 8,
    "date": 91, "time": 92, "datetime": 93, "timestamp": 93, "year": 12, "char": 1, "varchar": 12,
    "text": 2005, "json": 12, "binary": 2004, "enum": 4, "set": -7,
}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A column of the source. `text(value)` is the text that Canal sends."""

    name: str
    mysql_type: str
    text: Callable[[Any], str | None] = field(init=False, repr=False, compare=False)
    sql_type: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        mysql_type = read_type(self.mysql_type)
        encode = _encoder(mysql_type)
        object.__setattr__(self, "text", lambda value: None if value is None else encode(value))
        object.__setattr__(self, "sql_type", _SQL_TYPES[mysql_type.name])


def time_text(value: timedelta) -> str:
    """Format a TIME of whole seconds: `08:30:00`."""
    seconds = round(abs(value).total_seconds())
    sign = "-" if value < timedelta() else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _encoder(mysql_type: MySQLType) -> Callable[[Any], str]:
    name, sizes = mysql_type.name, mysql_type.sizes
    if name == "enum":
        return lambda label: str(mysql_type.labels.index(label) + 1)
    if name == "set":
        bits = {label: 1 << bit for bit, label in enumerate(mysql_type.labels)}
        return lambda labels: str(sum(bits[label] for label in labels))
    if name in ("datetime", "timestamp"):
        return partial(_datetime, digits=sizes[0] if sizes else 0)
    return _TEXTS.get(name, str)


def _binary(value: bytes) -> str:
    """Write one character per byte. Canal drops trailing zeros."""
    return value.rstrip(b"\0").decode("latin-1")


def _datetime(value: datetime, digits: int) -> str:
    text = f"{value:%Y-%m-%d %H:%M:%S}"
    return f"{text}.{value.microsecond:06d}"[: len(text) + 1 + digits] if digits else text


def _json(value: str) -> str:
    """Format as MySQL prints it: with a space after each colon and comma."""
    return msgspec.json.format(value, indent=0)


_TEXTS: Mapping[str, Callable[[Any], str]] = {
    "decimal": lambda value: format(value, "f"),
    "time": time_text,
    "binary": _binary,
    "json": _json,
}
