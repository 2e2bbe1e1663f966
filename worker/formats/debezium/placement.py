"""What is read of records without their rows: their place in the log, and their table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from worker.formats.debezium.connect.schema import BEGIN, Envelopes
from worker.formats.debezium.source import Payload, Source, SourceLogPosition
from worker.formats.json_values import DECODE_ERRORS
from worker.formats.times import Milliseconds

Part = TypeVar("Part")

_NOTHING = msgspec.Raw()


class _Placed(msgspec.Struct, gc=False):
    """What tells a record's place in the log."""

    source: SourceLogPosition
    op: str | None = None
    ddl: msgspec.Raw = _NOTHING


class _Logged(msgspec.Struct, gc=False):
    """What tells a record's table."""

    source: Source
    op: str | None = None
    ts_ms: Milliseconds | None = None


read_placed: Callable[[Payload], _Placed] = msgspec.json.Decoder(_Placed).decode
read_logged: Callable[[Payload], _Logged] = msgspec.json.Decoder(_Logged).decode


def part(read: Callable[[Payload], Part], value: bytes, envelopes: Envelopes) -> Part:
    """What `read` reads of the value's payload. Raises one of DECODE_ERRORS."""
    if not value.startswith(BEGIN):
        try:
            return read(value)  # nearly always a value without a schema
        except DECODE_ERRORS:
            pass
    return read(envelopes.split(value).payload)
