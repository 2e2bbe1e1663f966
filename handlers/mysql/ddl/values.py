"""Values of a new column in existing rows: its default."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from handlers.mysql.ddl import Column, Default
from handlers.mysql.types import BYTES, INTEGERS, MOST_OF_BINARY, TEXTS, MySQLType, read_type
from handlers.mysql.values import converter_of

_PLAIN = re.compile(r"(0|-?[1-9]\d*)(\.\d+)?")
_NUMBERS = (*INTEGERS, "decimal", "float", "double", "bit", "year")
_CONVERTED = (("text", "bit"), ("bits", "year"))
"""Kinds of literals and types for which the server takes a text as bytes, or another number."""


def default_value(column: Column, time_ms: int) -> Any:
    """Return the default value, in the form that changes use for the column's type. None if there is no
    default or it cannot be known: an expression (a new UUID for each row), or a date outside the calendar.

    `time_ms`: when the statement ran, in milliseconds since 1970 UTC. CURRENT_TIMESTAMP is this time."""
    type_, default = read_type(column.type), column.default
    if column.numbered or column.generated is not None or (default is None and column.nullable):
        return None
    if default is None:
        return _implicit(type_)
    if default.kind in ("null", "expression"):
        return None
    if default.kind == "now":
        return _moment(type_, time_ms)
    try:
        return _literal(column.type, type_, default)
    except ValueError:
        return None


def _implicit(type_: MySQLType) -> Any:
    """The default of a NOT NULL column: https://dev.mysql.com/doc/refman/8.0/en/data-type-defaults.html."""
    if type_.name in _NUMBERS:
        return _read("0", type_)
    if type_.name in BYTES:
        length = type_.sizes[0] if type_.name == "binary" and type_.sizes else 0
        return bytes(min(length, MOST_OF_BINARY))
    own = {"enum": type_.labels[0] if type_.labels else "", "set": (), "time": timedelta(), "json": "null"}
    # Dates and geometries have no default that Python or another database can represent.
    return "" if type_.name in TEXTS else own.get(type_.name)


def _read(text: str, type_: MySQLType) -> Any:
    sizes = f"({','.join(map(str, type_.sizes))})" if type_.sizes else ""
    converter = converter_of(type_.name + sizes)
    return text if converter is None else converter.read(text)


def _moment(type_: MySQLType, time_ms: int) -> Any:
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    if type_.name == "timestamp":
        return moment
    return moment.date() if type_.name == "date" else moment.replace(tzinfo=None)


def _literal(type_text: str, type_: MySQLType, default: Default) -> Any:
    text = default.text
    if (default.kind, type_.name) in _CONVERTED or (default.kind == "bytes" and type_.name in _NUMBERS):
        return None
    if default.kind in ("bits", "bytes"):
        base = 2 if default.kind == "bits" else 16
        if type_.name in _NUMBERS:
            return _read(str(int(text, base)), type_)
        raw = int(text, base).to_bytes((len(text) * base.bit_length() - len(text) + 7) // 8, "big")
        text = raw.decode("latin-1" if type_.name in BYTES else "utf-8")
    elif type_.name in BYTES:
        text = text.encode().decode("latin-1")
    if default.kind == "number" and (type_.labels or not (type_.name in _NUMBERS or _PLAIN.fullmatch(text))):
        return None  # it is the place of a label, or MySQL spells it in another way
    if type_.name in ("char", "enum"):
        text = text.rstrip(" ")
        return None if type_.name == "enum" and text not in type_.labels else text
    if type_.name == "set":
        chosen = {*filter(None, text.split(","))}
        return set_in_order(chosen, type_.labels) if chosen.issubset(type_.labels) else None
    converter = converter_of(type_text)
    value: Any = text if converter is None else converter.read(text)
    is_zero = default.kind == "text" and text in ("0", "00")
    if type_.name == "year" and (is_zero or 0 < value < 100):  # 1970 to 2069
        value += 2000 if value < 70 else 1900
    return value


def set_in_order(labels: Iterable[str], order: Iterable[str]) -> tuple[str, ...]:
    """Sort labels in the order of a set's type. Labels that the type lacks are dropped, as in MySQL."""
    chosen = frozenset(labels)
    return tuple(label for label in order if label in chosen)


def warn_of_generated(log: Any, table: str, column: Column) -> None:
    """Log that existing rows lack the values that the source has computed for a new or changed column."""
    if column.generated is not None:
        log.warning("ddl_rows_not_computed", table=table, column=column.name, expression=column.generated)
