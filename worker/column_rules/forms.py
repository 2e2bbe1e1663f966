"""Casts of values from one type to another, their canonical form for hashes and texts, and added columns."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException
from math import isfinite
from typing import Any, NamedTuple

from handlers import Change
from handlers.values.bounds import BeyondCalendar, bounded
from handlers.values.change_json import duration_text

CAST_NAMES = ("text", "integer", "decimal(12,2)", "double", "boolean", "date", "datetime", "timestamp")
_DECIMAL = re.compile(r"decimal\((\d{1,2}),\s?(\d{1,2})\)", re.ASCII)
_MOST_DIGITS = 65
_WIDE = Context(prec=200)


class Cast(NamedTuple):
    """A type to cast values to."""

    type: str
    """The type text, as in `Change.types`."""
    convert: Callable[[Any], Any]
    """Converts a value that is not NULL. Raises ValueError if the type cannot represent it."""
    keeps_keys: bool
    """Whether different keys stay different."""


def cast_of(text: str) -> Cast | None:
    """Return the cast of that name, or None if it does not exist."""
    found = _DECIMAL.fullmatch(text)
    if found is not None:
        precision, scale = int(found[1]), int(found[2])
        if not 1 <= precision <= _MOST_DIGITS or scale > precision:
            return None
        return Cast(f"decimal({precision},{scale})", lambda value: _decimal(value, precision, scale), False)
    return _CASTS.get(text)


def _text(value: Any) -> str:
    if isinstance(value, bytes):  # a real backslash must differ from an escaped byte
        return value.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")
    if isinstance(value, timedelta):
        return duration_text(value)
    if isinstance(value, tuple):  # the labels of a set, which contain no comma
        return ",".join(value)
    return value if isinstance(value, str) else canonical(value).decode("utf-8", "backslashreplace")


def number_of(value: Any) -> Decimal:
    if isinstance(value, bool | int | Decimal):
        number = Decimal(value)
    elif isinstance(value, float):
        number = Decimal(repr(value))
    elif isinstance(value, str):
        try:
            number = Decimal(value.strip()) if "_" not in value else Decimal("nan")
        except DecimalException:
            raise ValueError("no number") from None
    else:
        raise ValueError("no number")  # noqa: TRY004 - the value does not fit
    if not number.is_finite():
        raise ValueError("no number")
    return bounded(number)


def _integer(value: Any) -> int:
    number = number_of(value).to_integral_value(ROUND_HALF_UP, _WIDE)
    if not -(2**63) <= number < 2**63:
        raise ValueError("beyond 64 bits")
    return int(number)


def _decimal(value: Any, precision: int, scale: int) -> Decimal:
    # `plus` makes 0 of -0, which some targets would keep as another text.
    number = _WIDE.plus(number_of(value).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _WIDE))
    if number.adjusted() >= precision - scale and number:
        raise ValueError("more digits than the type has")
    return number


def _double(value: Any) -> float:
    number = float(number_of(value))
    if not isfinite(number):
        raise ValueError("beyond what a double holds")
    return number


_TRUTHS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def _boolean(value: Any) -> bool:
    found = _TRUTHS.get(_text(value).lower())
    if found is None:
        raise ValueError("neither true nor false")
    return found


def _datetime(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if isinstance(value, str):
        return _datetime(datetime.fromisoformat(value))
    raise ValueError("no time")


def _timestamp(value: Any) -> datetime:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return _datetime(value).replace(tzinfo=UTC)


_CASTS = {
    "text": Cast("longtext", _text, True),
    "integer": Cast("bigint", _integer, False),
    "double": Cast("double", _double, False),
    "boolean": Cast("boolean", _boolean, False),
    "date": Cast("date", lambda value: _datetime(value).date(), False),
    "datetime": Cast("datetime(6)", _datetime, False),
    "timestamp": Cast("timestamp(6)", _timestamp, False),
}


def canonical(value: Any) -> bytes:
    """Return the bytes to hash. Equal values have the same bytes in every column, table, source and release.
    docs/columns.md guarantees this.

    >>> canonical("a@x.example"), canonical(7), canonical(Decimal("7.50")), canonical(date(2026, 11, 1))
    (b'a@x.example', b'7', b'7.5', b'2026-11-01')
    """
    write = _WRITERS.get(type(value))
    if write is not None:
        return write(value)
    return json.dumps(
        value, default=_in_json, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    ).encode("utf-8", "surrogatepass")


def _digits_of(value: Decimal) -> bytes:
    if not value.is_finite():
        return str(value).encode()
    if not value:
        return b"0"
    text = format(value, "f")
    return (text.rstrip("0").rstrip(".") if "." in text else text).encode()


def _time(value: datetime) -> bytes:
    utc = value if value.tzinfo is None else value.astimezone(UTC)
    return utc.isoformat(sep=" ", timespec="microseconds").encode()


def _in_json(value: Any) -> str:
    return canonical(value).decode("utf-8", "backslashreplace") if type(value) in _WRITERS else str(value)


_WRITERS: dict[type, Callable[[Any], bytes]] = {
    str: lambda value: value.encode("utf-8", "surrogatepass"),
    bytes: bytes,
    int: lambda value: b"%d" % value,
    bool: lambda value: b"%d" % value,
    float: lambda value: b"%d" % value if value.is_integer() and abs(value) < 1e15 else repr(value).encode(),
    Decimal: _digits_of,
    datetime: _time,
    date: lambda value: value.isoformat().encode(),
    timedelta: lambda value: b"%d" % (value // timedelta(microseconds=1)),
    BeyondCalendar: lambda value: str(value).encode(),
}


class Added(NamedTuple):
    type: str
    """The type text, as in `Change.types`."""
    value: Callable[[Change, str, str], Any]
    """Returns the value for a change, its database and its table."""
    is_constant: bool
    """Whether the value is the same in all rows. Rows without a key can then be found by it too."""


def added_of(what: Any) -> Added:
    """Return an added column. `what`: one of WORDS, or {"value": ...}."""
    if isinstance(what, dict):
        constant = what["value"]
        return Added(_type_of(constant), lambda _change, _database, _table: constant, True)
    return _ADDED[what]


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "varchar(255)" if len(value) <= 255 else "longtext"
    return "bigint" if isinstance(value, int) else "double"


def moment(milliseconds: int) -> datetime:
    """Convert a source time to UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


_ADDED = {
    "now()": Added("timestamp(6)", lambda *_: datetime.now(UTC), False),
    "source_time": Added("timestamp(6)", lambda change, *_: moment(change.source_time_ms), False),
    "topic": Added("varchar(255)", lambda change, *_: change.topic, False),
    "partition": Added("int", lambda change, *_: change.partition, False),
    "offset": Added("bigint", lambda change, *_: change.offset, False),
    "op": Added("varchar(16)", lambda change, *_: change.op, False),
    "database": Added("varchar(255)", lambda _change, database, _table: database, True),
    "table": Added("varchar(255)", lambda _change, _database, table: table, True),
    "transaction": Added("varchar(255)", lambda change, *_: change.transaction, False),
}
WORDS = tuple(_ADDED)
