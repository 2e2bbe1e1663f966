"""The shard that a change belongs to, with `order_by: row`.

Changes of one row always have the same shard, on every process, host and Python version, because a target may
store its marks by shard. The hash is CRC-32 of the key's values as text. It is fast and the same everywhere,
and it spreads keys with a stride (ids that end in zeros) as evenly as others."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from zlib import crc32

from handlers.api import Change
from handlers.values.bounds import BeyondCalendar

SHARDS = 64
"""Shards of each table: four for each of 16 lanes. That keeps the lanes busy even if the load differs between
keys, and each shard's batches stay large enough to be worth a call."""


def shard_of(change: Change) -> int | None:
    """Return a number from 0 to SHARDS - 1, or None for a change that concerns the whole table.

    Keys that a database may consider equal have the same shard. Such texts differ only in case, accents or
    trailing spaces (MySQL's usual collations), such numbers only in trailing zeros. All rows of a table
    without a primary key have shard 0. DDL, truncate and a row without its whole key have none: it may be any
    row."""
    columns = change.key_columns
    row = change.after if change.after is not None else change.before
    if row is None:
        return None
    if not columns:
        return 0
    try:
        if len(columns) == 1:
            value = row[columns[0]]
            if type(value) is int:
                return crc32(b"%d" % value) % SHARDS
            return crc32(_text(value)) % SHARDS
        return crc32(b"\x1f".join([_text(row[column]) for column in columns])) % SHARDS
    except KeyError:
        return None


def _text(value: Any) -> bytes:
    """Return the same text for equal values, everywhere."""
    write = _WRITERS.get(type(value))
    return repr(value).encode("utf-8", "backslashreplace") if write is None else write(value)


def _of_int(value: int) -> bytes:
    return b"%d" % value


def _of_decimal(value: Decimal) -> bytes:
    if not value.is_finite():
        return str(value).encode()
    # Digits without trailing zeros, and the exponent: no decimal context can round them.
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    kept = text.rstrip("0")
    if not kept:
        return b"0"
    power = int(exponent) + len(text) - len(kept)
    if 0 <= power <= 64:  # written as an integer
        return f"{'-' * sign}{kept}{'0' * power}".encode()
    return f"{'-' * sign}{kept}e{power}".encode()


def _of_str(value: str) -> bytes:
    value = value.rstrip(" ")
    if value.isascii():
        return value.lower().encode()
    apart = unicodedata.normalize("NFKD", value.casefold())
    plain = "".join([letter for letter in apart if not unicodedata.combining(letter)])
    return plain.casefold().encode("utf-8", "surrogatepass")


_WRITERS: dict[type, Callable[[Any], bytes]] = {
    int: _of_int,
    bool: _of_int,
    str: _of_str,
    Decimal: _of_decimal,
    float: lambda value: b"%d" % value if value.is_integer() else repr(value).encode(),
    bytes: lambda value: value.rstrip(b"\0"),  # binary(n) is filled up with them
    BeyondCalendar: lambda value: str(value).encode(),
}
