"""A registered schema made ready: what the bytes of its records are in Kafka Connect's JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

import msgspec

from worker.formats.debezium.connect.schema import Head, Split
from worker.formats.interface import UndecodableRecord
from worker.formats.schema_registry.avro.connect import connect_schema
from worker.formats.schema_registry.avro.envelopes import AvroEnvelope, envelope_of
from worker.formats.schema_registry.avro.schema import SchemaError, parse
from worker.formats.schema_registry.avro.values import READ_ERRORS, reader_of
from worker.formats.schema_registry.client import Registered
from worker.formats.schema_registry.json_schema import json_head

MEMORY_OF_TEXT = 10
"""Bytes that a byte of a schema's text takes, made ready; a head stays as it is."""


@dataclass(eq=False, slots=True)
class RegisteredSchema:
    """Never changed; threads share it."""

    number: int
    head: Head
    split: Callable[[bytes], Split]
    """A value with the schema, taken apart. Raises UndecodableRecord for one that is not of it."""
    envelope: AvroEnvelope | None = None
    """Of rows in Avro."""
    _: KW_ONLY
    weight: int
    """Bytes; it takes about MEMORY_OF_TEXT times as much memory."""


def read(registered: Registered, prefix: bytes) -> RegisteredSchema:
    """`prefix`: what its records begin with. Raises SchemaError."""
    number = int.from_bytes(prefix[1:], "big")
    if registered.kind == "AVRO":
        return _avro(registered, prefix, number)
    if registered.kind == "JSON":
        head = json_head(registered, prefix)
        size = len(prefix)
        split: Callable[[bytes], Split] = lambda value: Split(head, memoryview(value)[size:])  # noqa: E731
        return RegisteredSchema(number, head, split, weight=_weight(registered, head))
    if registered.kind == "PROTOBUF":
        # Who reads Avro needs no Protobuf.
        from worker.formats.schema_registry.protobuf.values import ProtobufSchema  # noqa: PLC0415

        references = list(zip(registered.names, registered.references, strict=True))
        schema = ProtobufSchema(registered.text, references, prefix, number)
        return RegisteredSchema(number, schema.head, schema.split, weight=schema.weight)
    raise SchemaError(
        f"a schema of {registered.kind[:20]}: Avro, JSON Schema and Protobuf are read; let the connector "
        "write one of them (value.converter)"
    )


def _avro(registered: Registered, prefix: bytes, number: int) -> RegisteredSchema:
    schema = parse(registered.text, registered.references)
    try:
        values, head = reader_of(schema), Head(prefix, connect_schema(schema), closes=None)
        envelope = envelope_of(schema)
    except RecursionError:
        raise SchemaError("too many types in each other, by their names") from None
    start = len(prefix)
    encode = msgspec.json.Encoder().encode

    def split(value: bytes) -> Split:
        try:
            found, end = values(value, start)
            if end != len(value):
                raise ValueError(f"its end is at byte {end} of {len(value)}")
        except READ_ERRORS as error:
            raise UndecodableRecord(f"the bytes are not of their schema ({number}): {error}") from None
        return Split(head, encode(found))

    return RegisteredSchema(number, head, split, envelope, weight=_weight(registered, head))


def _weight(registered: Registered, head: Head) -> int:
    texts = len(registered.text) + sum(map(len, registered.references))
    return texts + len(head.schema) // MEMORY_OF_TEXT
