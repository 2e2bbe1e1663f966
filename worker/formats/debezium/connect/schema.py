"""Kafka Connect's JSON with schemas: `{"schema": ..., "payload": ...}`, with the schema in every record.

The schema takes three quarters of the bytes and is nearly always the previous record's. So it is parsed once:
the bytes before the payload are remembered, and a value that begins with them has the same schema.
(https://github.com/apache/kafka/blob/trunk/connect/json/src/main/java/org/apache/kafka/connect/json/JsonConverter.java)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from worker.formats.json_rows import DECODE_ERRORS

BEGIN = b'{"schema"'
"""The first bytes of a value with a schema. (A row may also have a column of that name.)"""

_MOST_HEADS = 64
_END = ord("}")
_NO_VALUE = b"\xff"  # for a head that fits no other value, because no JSON begins with this byte
DECIMAL = "org.apache.kafka.connect.data.Decimal"
SOURCE = "__debezium.source.column."
"""Prefix of the parameters with the source's own type (`datatype.propagate.source.type`)."""


class Field(msgspec.Struct, frozen=True):
    """One entry of a Connect schema: a column, or a whole row."""

    type: str
    """`int8` to `int64`, `float`, `double`, `boolean`, `string`, `bytes`, `array`, `map`, `struct`."""
    field: str = ""
    """The column's name."""
    name: str | None = None
    """The value's meaning: `io.debezium.time.Date`."""
    parameters: Mapping[str, str] | None = None
    fields: tuple[Field, ...] = ()
    items: Field | None = None
    default: Any = None

    def parameter(self, name: str) -> str | None:
        return self.parameters.get(name) if self.parameters else None


class Head:
    """The bytes of a value up to its payload. Compared by identity.

    A value that begins with the same bytes and ends with a brace has the same schema. The bytes in between
    are its payload."""

    __slots__ = ("bytes", "closes", "schema", "size")

    def __init__(self, head: bytes, schema: bytes, closes: bytes | None = b"}") -> None:
        self.bytes = head
        self.size = len(head)
        self.schema = schema
        """JSON; `null` if the value has no schema."""
        self.closes = closes
        """The bytes after the payload. None: the payload is not JSON."""

    def payload(self, value: bytes) -> bytes | memoryview | None:
        """The JSON of a value that begins with these bytes. None for other values."""
        closes = self.closes
        if closes is None or not value.startswith(self.bytes) or not value.endswith(closes):
            return None
        return memoryview(value)[self.size : len(value) - len(closes)]


class _Envelope(msgspec.Struct, gc=False):
    schema: msgspec.Raw
    payload: msgspec.Raw


class Split(NamedTuple):
    """A value's head and payload."""

    head: Head | None
    """None if the value has no schema."""
    payload: bytes | memoryview | msgspec.Raw
    """JSON."""


_read_envelope = msgspec.json.Decoder(_Envelope).decode
_read_field = msgspec.json.Decoder(Field | None).decode


class Envelopes:
    """A splitter of values that remembers recent heads.

    Threads share it without a lock, because the heads are one tuple that is replaced as a whole."""

    def __init__(self) -> None:
        self._recent: tuple[Head, ...] = ()

    def split(self, value: bytes) -> Split:
        """Split a value. A value without a schema is its own payload, even if it is not JSON."""
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
        # The same head means the same schema only if the payload is the last member.
        begin = value[: len(value) - len(payload) - 1]
        if value.startswith(BEGIN) and value == begin + payload + b"}":
            head = Head(begin, schema)
            self._recent = (head, *self._recent[: _MOST_HEADS - 1])
        else:
            head = Head(_NO_VALUE, schema)
        return Split(head, payload)


def columns_of(schema: bytes) -> dict[str, Field]:
    """The columns of the rows that a schema describes, in order: the fields of `after` for an envelope, else
    the schema's own fields. Empty if there is no schema. Raises msgspec.DecodeError."""
    row = _read_field(schema)
    if row is None:
        return {}
    parts = {part.field: part for part in row.fields}
    if {"before", "after", "source", "op"} <= parts.keys() and parts["after"].type == "struct":
        row = parts["after"]
    return {column.field: column for column in row.fields}


def unquoted_list(text: str) -> tuple[str, ...]:
    r"""The entries of a comma-separated list of Debezium, in which `\,` is a comma inside an entry."""
    return tuple(part.replace("\0", ",") for part in text.replace("\\,", "\0").split(","))
