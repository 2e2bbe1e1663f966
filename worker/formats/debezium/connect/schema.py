"""Kafka Connect's JSON with schemas: `{"schema": ..., "payload": ...}`, the schema in every record.

It is three quarters of the bytes and nearly always that of the record before. So a schema is parsed once:
what stands before the payload is remembered, and a value that begins with the same bytes has the same schema.
(https://github.com/apache/kafka/blob/trunk/connect/json/src/main/java/org/apache/kafka/connect/json/JsonConverter.java)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from worker.formats.json_values import DECODE_ERRORS

BEGIN = b'{"schema"'
"""How a value with a schema begins. (A row may have a column of that name, too.)"""

_MOST_HEADS = 64
_END = ord("}")
_NO_VALUE = b"\xff"  # of a head that tells nothing about other values: no JSON begins so


class Field(msgspec.Struct, frozen=True):
    """One entry of a Connect schema: a column, or a whole row."""

    type: str
    """`int8` to `int64`, `float`, `double`, `boolean`, `string`, `bytes`, `array`, `map`, `struct`."""
    field: str = ""
    """The column's name."""
    name: str | None = None
    """What the value means: `io.debezium.time.Date`."""
    parameters: Mapping[str, str] | None = None
    fields: tuple[Field, ...] = ()
    items: Field | None = None
    default: Any = None

    def parameter(self, name: str) -> str | None:
        return self.parameters.get(name) if self.parameters else None


class Head:
    """The bytes of a value up to its payload. Compared by identity.

    A value that begins with the same bytes, and ends with a brace, has the same schema, and its payload is
    what stands between."""

    __slots__ = ("bytes", "closes", "schema", "size")

    def __init__(self, head: bytes, schema: bytes, closes: bytes | None = b"}") -> None:
        self.bytes = head
        self.size = len(head)
        self.schema = schema
        """JSON; `null` where there is none."""
        self.closes = closes
        """What follows the payload; None: the payload is no JSON."""

    def payload(self, value: bytes) -> bytes | memoryview | None:
        """The JSON of a value that begins so; None for another value."""
        closes = self.closes
        if closes is None or not value.startswith(self.bytes) or not value.endswith(closes):
            return None
        return memoryview(value)[self.size : len(value) - len(closes)]


class _Envelope(msgspec.Struct, gc=False):
    schema: msgspec.Raw
    payload: msgspec.Raw


class Split(NamedTuple):
    """A value taken apart."""

    head: Head | None
    """None: it has no schema."""
    payload: bytes | memoryview | msgspec.Raw
    """JSON."""


_read_envelope = msgspec.json.Decoder(_Envelope).decode
_read_field = msgspec.json.Decoder(Field | None).decode


class Envelopes:
    """Takes values apart, and remembers the heads that it met lately.

    Threads share it without a lock: the remembered heads are one tuple that is replaced as a whole."""

    def __init__(self) -> None:
        self._recent: tuple[Head, ...] = ()

    def split(self, value: bytes) -> Split:
        """A value without a schema is its own payload, also one that is no JSON."""
        if value.startswith(BEGIN) and value[-1] == _END:
            recent = self._recent
            for head in recent:
                if value.startswith(head.bytes):
                    if head is not recent[0]:
                        self._recent = (head, *(other for other in recent if other is not head))
                    return Split(head, memoryview(value)[head.size : -1])
        elif b'"payload"' not in value:
            return Split(None, value)
        try:
            envelope = _read_envelope(value)
        except DECODE_ERRORS:
            return Split(None, value)
        schema, payload = bytes(envelope.schema), bytes(envelope.payload)
        if not schema.startswith(b"{") and schema != b"null":
            return Split(None, value)  # a row with columns of these names
        # With the payload last and nothing behind it, the same head means the same schema.
        begin = value[: len(value) - len(payload) - 1]
        if value.startswith(BEGIN) and value == begin + payload + b"}":
            head = Head(begin, schema)
            self._recent = (head, *self._recent[: _MOST_HEADS - 1])
        else:
            head = Head(_NO_VALUE, schema)
        return Split(head, payload)


def columns_of(schema: bytes) -> dict[str, Field]:
    """The columns of the rows that a value's schema describes, in their order: of an envelope those of
    `after`, else its own. Empty where there is no schema. Raises msgspec.DecodeError."""
    row = _read_field(schema)
    if row is None:
        return {}
    parts = {part.field: part for part in row.fields}
    if {"before", "after", "source", "op"} <= parts.keys() and parts["after"].type == "struct":
        row = parts["after"]
    return {column.field: column for column in row.fields}


def unquoted_list(text: str) -> tuple[str, ...]:
    r"""The entries of Debezium's comma-separated lists, where `\,` is a comma inside an entry."""
    return tuple(part.replace("\0", ",") for part in text.replace("\\,", "\0").split(","))
