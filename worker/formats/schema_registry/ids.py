"""The ids by which records name their schemas: before their bytes, or in a header.

https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
https://www.apicur.io/registry/docs/apicurio-registry/3.0.x/getting-started/assembly-configuring-kafka-client-serdes.html

An id in a header is moved before the bytes, so all other code is the same for both. A mark gives the kind of
the id. A record's head is the mark with the id."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Literal, NamedTuple

from worker.formats.interface import Record, UndecodableRecord, any_headers, known_headers, remade

_NUMBER, _GUID, _CONTENT, _GLOBAL = b"\0\1\2\3"
"""The first two marks are Confluent's. The others exist only here, for ids from Apicurio's headers."""
GUID_BYTES = 16
_LONG = 8
_CONFLUENT = {"__key_schema_id": False, "__value_schema_id": True}
_APICURIO = {
    f"apicurio.{part}.{name}": (part == "value", bytes((mark,)))
    for part in ("key", "value")
    for name, mark in (("contentId", _CONTENT), ("globalId", _GLOBAL))
}
_HASHES = ("apicurio.key.contentHash", "apicurio.value.contentHash")
_ENCODINGS = ("apicurio.key.encoding", "apicurio.value.encoding")
_OURS = frozenset((*_CONFLUENT, *_APICURIO, *_HASHES, *_ENCODINGS))


class SchemaId(NamedTuple):
    kind: Literal["number", "guid", "content", "global"]
    """`number`: the record does not give the kind. `content` and `global`: an id of Apicurio."""
    text: str
    """The id as requests to the registry contain it."""


class Heads:
    """The heads of records that name a schema."""

    def __init__(self, id_bytes: int = 4, *, in_headers: bool = False) -> None:
        """`in_headers`: whether ids from headers also precede the bytes."""
        self.sizes: Mapping[bytes, int] = {bytes((_NUMBER,)): 1 + id_bytes}
        """Mark -> bytes of a head. A value without any of these marks is JSON or empty."""
        self.in_headers = in_headers
        if in_headers:
            self.sizes = {
                **self.sizes,
                bytes((_GUID,)): 1 + GUID_BYTES,
                bytes((_CONTENT,)): 1 + _LONG,
                bytes((_GLOBAL,)): 1 + _LONG,
            }

    def of(self, value: bytes) -> bytes | None:
        """The head of a key or a value. None if it names no schema or ends too soon."""
        size = self.sizes.get(value[:1])
        return None if size is None or len(value) < size else value[:size]

    @staticmethod
    def read(head: bytes) -> SchemaId:
        if head[0] == _GUID:
            return SchemaId("guid", str(uuid.UUID(bytes=head[1:])))
        text = str(int.from_bytes(head[1:], "big"))
        return SchemaId(
            "content" if head[0] == _CONTENT else "global" if head[0] == _GLOBAL else "number", text
        )


def names_schema(record: Record) -> bool:
    """Whether a header of the record names a schema."""
    return any(name in _OURS for name, _ in any_headers(record) or ())


def framed(record: Record) -> Record:
    """Move the ids in a record's headers before its key and value. Without such headers, return the record.

    Raises UndecodableRecord if the headers do not name a schema correctly."""
    before = [b"", b""]  # heads of key and value
    for name, content in known_headers(record):
        if name in _CONFLUENT:
            if content is None or len(content) <= GUID_BYTES or content[0] != _GUID:
                raise UndecodableRecord(f"the header {name} does not contain a schema's GUID")
            if len(content) > 1 + GUID_BYTES:
                raise UndecodableRecord(
                    f"the header {name} contains more than a GUID, as for Protobuf: let the connector write "
                    "Protobuf with ids in its values, or Avro"
                )
            before[_CONFLUENT[name]] = content
        elif name in _APICURIO:
            is_value, mark = _APICURIO[name]
            if content is None or len(content) != _LONG:
                raise UndecodableRecord(f"the header {name} does not contain an id of {_LONG} bytes")
            before[is_value] = mark + content
        elif name in _HASHES:
            raise UndecodableRecord(
                f"the header {name} names the schema by its hash: let the connector write ids "
                "(apicurio.registry.use-id=contentId)"
            )
        elif name in _ENCODINGS and content is not None and content.upper() == b"JSON":
            raise UndecodableRecord(
                f"the header {name} says JSON, which is another form of Avro: let the connector write the "
                "binary encoding"
            )
    for head, own in zip(before, (record.key(), record.value()), strict=True):
        if not head and own and own[0] in (_CONTENT, _GLOBAL) and len(own) > 1 + _LONG:
            raise UndecodableRecord(
                f"no header names its schema, and the record is not JSON: it begins with byte {own[0]}"
            )
    if before == [b"", b""]:
        return record
    key, value = (
        None if own is None else head + own
        for head, own in zip(before, (record.key(), record.value()), strict=True)
    )
    return remade(record, key, value, without=_OURS)
