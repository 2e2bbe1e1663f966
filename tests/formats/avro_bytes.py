"""Schemas and values in Avro, made by hand."""

from __future__ import annotations

import json
from typing import Any

from worker.formats.schema_registry.client import Registered
from worker.formats.schema_registry.registered import RegisteredSchema, read

__all__ = ["HEAD", "PREFIX", "array", "envelope", "long", "record_type", "registered"]

PREFIX = b"\0\0\0\0\1"
"""What values begin with."""
HEAD = b"\0\2\2" + b"\2a" * 5
"""The first fields of an `envelope`: its rows (NULL, and one of id 1), its source and op."""


def record_type(name: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def envelope(columns: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Of rows with an id and these columns, with more fields in the end."""
    source = record_type("S", connector="string", name="string", db="string", table="string")
    row = record_type("V", id="long", **(columns or {}))
    return record_type("E", before=["null", row], after=["null", "V"], source=source, op="string", **fields)


def long(number: int) -> bytes:
    rest, out = (number << 1) if number >= 0 else (-number << 1) - 1, bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*out, rest])


def registered(schema: Any) -> RegisteredSchema:
    return read(Registered("AVRO", json.dumps(schema)), PREFIX)
