"""What a DTS record says first: the fields up to `objectName`, which are all that routing needs."""

from __future__ import annotations

import re
from typing import NamedTuple

from worker.formats.dts.schema import OPERATIONS, SOURCE_TYPES
from worker.formats.dts.wire import read_bytes, read_long, skip_long

__all__ = ["Header", "names_of", "read_header", "routing_key"]

_THREE_NUMBERS = re.compile(rb"(?:[\x80-\xff]{0,9}[\x00-\x7f]){3}").match
_DOT = "\\u002E"
"""How DTS writes a dot inside a name."""


class Header(NamedTuple):
    """The leading fields of a record."""

    source_time: int
    """Seconds since 1970."""
    transaction: bytes
    source_type: str
    operation: str
    object_name: bytes | None
    end: int
    """Where the next field begins."""


def routing_key(value: bytes) -> bytes:
    """The bytes of `operation` and `objectName`, which say where a record belongs. 1 us.

    Raises ValueError, IndexError or AttributeError for what is no record, but does not see everything that is
    wrong: `read_header` does.
    """
    at: int = _THREE_NUMBERS(value).end()  # type: ignore[union-attr]  # version, id, sourceTimestamp
    for _ in range(3):  # sourcePosition, safeSourcePosition, sourceTxid
        length = value[at]
        if length < 0x80:
            at += 1 + (length >> 1)
        else:
            length, at = read_long(value, at)
            at += length
    length = value[at + 1]  # of the source's version, behind its type
    if length < 0x80:
        at += 2 + (length >> 1)
    else:
        length, at = read_long(value, at + 1)
        at += length
    if value[at + 1] != 2:  # no objectName
        return value[at : at + 2]
    length = value[at + 2]
    if length < 0x80:
        return value[at : at + 3 + (length >> 1)]
    length, end = read_long(value, at + 2)
    return value[at : end + length]


def read_header(value: bytes) -> Header:
    """The leading fields, each checked. Raises ValueError, IndexError where the bytes end too soon."""
    source_time, at = read_long(value, skip_long(value, skip_long(value, 0)))
    _, at = read_bytes(value, at)
    _, at = read_bytes(value, at)
    transaction, at = read_bytes(value, at)
    source_type, at = _symbol(value, at, SOURCE_TYPES, "sourceType")
    _, at = read_bytes(value, at)
    operation, at = _symbol(value, at, OPERATIONS, "operation")
    branch = value[at]
    at += 1
    object_name = None
    if branch == 2:
        object_name, at = read_bytes(value, at)
    elif branch:
        raise ValueError("`objectName` is neither null nor text")
    if at > len(value):
        raise IndexError
    return Header(source_time, transaction, source_type, operation, object_name, at)


def _symbol(value: bytes, at: int, symbols: tuple[str, ...], field: str) -> tuple[str, int]:
    place = value[at]
    if place & 1 or place >> 1 >= len(symbols):
        raise ValueError(f"`{field}` is none of its {len(symbols)} (byte {place:#04x})")
    return symbols[place >> 1], at + 1


def names_of(object_name: bytes) -> tuple[str, str]:
    """(database, table) of an `objectName`: `db.table`; of `db.schema.table`, schema and table; of `db`, the
    database and an empty table.

    Raises ValueError for other forms and for text that is not UTF-8.
    """
    names = [name.replace(_DOT, ".") for name in object_name.decode().split(".")]
    if len(names) > 3 or not all(names):
        raise ValueError(
            f"`objectName` is {object_name.decode()!r}: neither db, db.table nor db.schema.table"
        )
    return (names[0], "") if len(names) == 1 else (names[-2], names[-1])
