"""A registered schema, prepared to convert the bytes of its records to Kafka Connect's JSON."""

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
"""Bytes of memory that a prepared schema takes for each byte of text. A head is kept unchanged."""


@dataclass(eq=False, slots=True)
class RegisteredSchema:
    """A prepared schema. Immutable, so threads share it."""

    number: int
    head: Head
    split: Callable[[bytes], Split]
    """Splits a value of this schema. Raises UndecodableRecord for any other value."""
    envelope: AvroEnvelope | None = None
    """The envelope, for rows in Avro."""
    _: KW_ONLY
    weight: int
    """Bytes. The schema takes about MEMORY_OF_TEXT times as much memory."""


def read(registered: Registered, prefix: bytes) -> RegisteredSchema:
    """Prepare a schema. `prefix`: the first bytes of its records. Raises SchemaError."""
    number = int.from_bytes(prefix[1:], "big")
    if registered.kind == "AVRO":
        return _avro(registered, prefix, number)
    if registered.kind == "JSON":
        head = json_head(registered, prefix)
        size = len(prefix)
        split: Callable[[bytes], Split] = lambda value: Split(head, memoryview(value)[size:])  # noqa: E731
        return RegisteredSchema(number, head, split, weight=_weight(registered, head))
    if registered.kind == "PROTOBUF":
        # Imported here, because Avro needs no Protobuf.
        from worker.formats.schema_registry.protobuf.descriptors import ProtobufSchema  # noqa: PLC0415

        references = list(zip(registered.names, registered.references, strict=True))
        schema = ProtobufSchema(registered.text, references, prefix, number)
        return RegisteredSchema(number, schema.head, schema.split, weight=schema.weight)
    raise SchemaError(
        f"a schema of kind {registered.kind[:20]}: only Avro, JSON Schema and Protobuf are read; let the "
        "connector write one of them (value.converter)"
    )


def _avro(registered: Registered, prefix: bytes, number: int) -> RegisteredSchema:
    schema = parse(registered.text, registered.references)
    try:
        values, head = reader_of(schema), Head(prefix, connect_schema(schema), closes=None)
        envelope = envelope_of(schema)
    except RecursionError:
        raise SchemaError("too many nested types") from None
    start = len(prefix)
    encode = msgspec.json.Encoder().encode

    def split(value: bytes) -> Split:
        try:
            found, end = values(value, start)
            if end != len(value):
                raise ValueError(f"its end is at byte {end} of {len(value)}")
        except READ_ERRORS as error:
            raise UndecodableRecord(f"the bytes do not match their schema ({number}): {error}") from None
        return Split(head, encode(found))

    return RegisteredSchema(number, head, split, envelope, weight=_weight(registered, head))


def _weight(registered: Registered, head: Head) -> int:
    texts = len(registered.text) + sum(map(len, registered.references))
    return texts + len(head.schema) // MEMORY_OF_TEXT
