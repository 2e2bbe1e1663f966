"""Canal's packets for tests, made up: written byte by byte, without the reader's own messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from captured import CapturedRecord

__all__ = ["INSERT", "begin", "column", "ddl", "end", "field", "packet", "row", "rows", "sent"]

INSERT, UPDATE, DELETE, ALTER, QUERY, TRUNCATE = 1, 2, 3, 5, 7, 8
TYPES = {"id": "bigint", "total": "decimal(10,2)", "note": "varchar(20)"}
ES = 1763000000000


def field(number: int, value: int | str | bytes) -> bytes:
    """A field of a protobuf message."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def column(
    name: str, value: str | None, type_text: str, *, key: bool = False, updated: bool = False
) -> bytes:
    data = field(2, 12) + field(3, name) + field(4, int(key)) + field(5, int(updated))
    data += field(6, int(value is None))
    return data + (b"" if value is None else field(8, value)) + field(10, type_text)


def row(
    after: Mapping[str, str | None] | None = None,
    before: Mapping[str, str | None] | None = None,
    *,
    types: Mapping[str, str] = TYPES,
    key: Sequence[str] = ("id",),
) -> bytes:
    """A RowData; of an update, what `before` has otherwise, or not at all, is `updated`."""
    data = b""
    for number, columns in ((1, before), (2, after)):
        for name, value in (columns or {}).items():
            updated = number == 2 and (before is None or name not in before or before[name] != value)
            data += field(number, column(name, value, types[name], key=name in key, updated=updated))
    return data


def _entry(kind: int, header: bytes, store_value: bytes) -> bytes:
    return field(1, field(1, 1) + field(6, ES) + header) + field(2, kind) + field(3, store_value)


def _event(event: int, database: str, table: str) -> bytes:
    return field(8, database) + field(9, table) + field(11, event)


def rows(
    table: str,
    *of_it: bytes,
    event: int = INSERT,
    database: str = "shop",
    header: bytes = b"",
    is_ddl: int = 0,
) -> bytes:
    """An entry with rows."""
    change = field(2, event) + field(10, is_ddl) + b"".join(field(12, each) for each in of_it)
    return _entry(2, _event(event, database, table) + header, change)


def ddl(
    table: str, sql: str, *, event: int = ALTER, database: str = "shop", is_ddl: int = 1, ran_in: str = ""
) -> bytes:
    change = field(2, event) + field(10, is_ddl) + field(11, sql) + field(14, ran_in)
    return _entry(2, _event(event, database, table), change)


def begin() -> bytes:
    return _entry(1, b"", field(4, 77))


def end() -> bytes:
    return _entry(3, b"", field(2, "77"))


def packet(*entries: bytes, **fields: Any) -> bytes:
    """As Canal's producer writes it; `type` and `compression` may be others."""
    body = b"".join(field(2, entry) for entry in entries)
    data = field(2, 1) + field(3, fields.get("type", 7))
    if "compression" in fields:
        data += field(4, fields["compression"])
    return data + field(5, body)


def sent(value: bytes | None) -> CapturedRecord:
    """A record with this value."""
    return CapturedRecord("cdc.shop", 3, 42, 1763000000123, None, value, [])
