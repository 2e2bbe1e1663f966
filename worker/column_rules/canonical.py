"""The canonical form of values, for hashes and texts."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from handlers.beyond_calendar import BeyondCalendar


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


def _decimal(value: Decimal) -> bytes:
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
    Decimal: _decimal,
    datetime: _time,
    date: lambda value: value.isoformat().encode(),
    timedelta: lambda value: b"%d" % (value // timedelta(microseconds=1)),
    BeyondCalendar: lambda value: str(value).encode(),
}
