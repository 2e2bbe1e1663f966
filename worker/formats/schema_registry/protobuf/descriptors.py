"""Protobuf schemas from a registry with `?format=serialized`: descriptors, which need no parser of Protobuf's
language.

https://docs.confluent.io/platform/current/schema-registry/develop/api.html#get--schemas-ids-int-%20id"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.message import Error, Message
from google.protobuf.message_factory import GetMessageClass

from worker.formats.debezium.connect.schema import Head, Split
from worker.formats.interface import UndecodableRecord
from worker.formats.schema_registry.avro.schema import SchemaError
from worker.formats.schema_registry.protobuf.connect import MessageReader

_OWN = "binlane/schema.proto"
_MOST_INDEXES = 64
_MOST_VARINT = 5
_FIELD = descriptor_pb2.FieldDescriptorProto
_FIRST = (0,)
_MOST_MESSAGES = 4
"""Most messages of one schema that are remembered. Debezium's schemas have one."""
_BYTES_OF_FIELD = 70
"""A tenth of the memory for one field."""


def _file(
    name: str, package: str, message: str, fields: Sequence[tuple[str, int]]
) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")
    made = file.message_type.add(name=message)
    for number, (field, kind) in enumerate(fields, 1):
        made.field.add(name=field, number=number, type=kind, label=_FIELD.LABEL_OPTIONAL)
    return file


def _known_files() -> Iterator[descriptor_pb2.FileDescriptorProto]:
    """Files that registries do not contain: Google's own, and those that the converter imports."""
    common = any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
    for module in (descriptor_pb2, *common, source_context_pb2, type_pb2, api_pb2):
        yield descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    whole, bytes_ = _FIELD.TYPE_INT32, _FIELD.TYPE_BYTES
    yield _file(
        *("google/type/date.proto", "google.type", "Date"),
        [("year", whole), ("month", whole), ("day", whole)],
    )
    yield _file(
        *("google/type/timeofday.proto", "google.type", "TimeOfDay"),
        [("hours", whole), ("minutes", whole), ("seconds", whole), ("nanos", whole)],
    )
    yield _file(
        *("confluent/type/decimal.proto", "confluent.type", "Decimal"),
        [("value", bytes_), ("precision", _FIELD.TYPE_UINT32), ("scale", whole)],
    )
    yield descriptor_pb2.FileDescriptorProto(  # its former path
        name="confluent/types/decimal.proto",
        syntax="proto3",
        dependency=["confluent/type/decimal.proto"],
        public_dependency=[0],
    )
    # Options of fields, which are not needed here and stay unknown.
    yield descriptor_pb2.FileDescriptorProto(name="confluent/meta.proto", syntax="proto3")


_KNOWN = {file.name: file for file in _known_files()}


def file_of(text: str, references: Sequence[tuple[str, str]]) -> FileDescriptor:
    """The file of a schema. `references`: (name in imports, text) of each file that it needs. Each one
    follows its own references. Raises SchemaError."""
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()

    def add(file: descriptor_pb2.FileDescriptorProto) -> None:
        if file.name in added:
            return
        for name in file.dependency:
            if name in _KNOWN:
                add(_KNOWN[name])
            elif name not in added:
                raise SchemaError(f"it imports {name}, which is not one of its references")
        added.add(file.name)
        pool.Add(file)

    try:
        for name, content in references:
            if name in _KNOWN:
                continue
            file = _read(content)
            file.name = name
            add(file)
        file = _read(text)
        file.name = own = "/".join([_OWN, *(name for name, _ in references)])  # a unique name
        add(file)
        return pool.FindFileByName(own)
    except (TypeError, KeyError, ValueError, Error) as error:  # a pool's errors for an invalid file
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(f"not a Protobuf schema: {error}") from None


def _read(text: str) -> descriptor_pb2.FileDescriptorProto:
    try:
        return descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, Error):
        raise SchemaError(
            "the registry returned this Protobuf schema as text, although ?format=serialized was requested: "
            "use one that can serialize (Confluent's, Karapace, Redpanda), or let the connector write Avro"
        ) from None


# ---- the message of a value


def indexes_at(value: bytes, place: int) -> tuple[tuple[int, ...], int]:
    """Read the indexes of a message in its file, and the start of its bytes. Raises ValueError."""
    count, place = _varint(value, place)
    if count == 0:
        return (0,), place
    if not 0 < count <= _MOST_INDEXES:
        raise ValueError(f"{count} indexes of a message")
    path = []
    for _ in range(count):
        index, place = _varint(value, place)
        path.append(index)
    return tuple(path), place


def message_of(file: FileDescriptor, path: Sequence[int]) -> Descriptor:
    """The message with these indexes. Raises ValueError if there is no such message."""
    siblings = list(file.message_types_by_name.values())
    found: Descriptor | None = None
    for index in path:
        if not 0 <= index < len(siblings):
            raise ValueError(f"its schema has no message {'.'.join(map(str, path))}")
        found = siblings[index]
        siblings = list(found.nested_types)
    assert found is not None
    return found


def _varint(value: bytes, place: int) -> tuple[int, int]:
    """Read a zigzag number, in Kafka's own encoding."""
    number = 0
    for shift in range(_MOST_VARINT):
        if place >= len(value):
            raise ValueError("it ends inside the indexes of its message")
        byte = value[place]
        place += 1
        number |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), place
    raise ValueError("not a message index")


class _Known(NamedTuple):
    head: Head
    kind: type[Message]
    reader: MessageReader


class ProtobufSchema:
    """A file of messages. Each value is one of these messages. Threads share it."""

    def __init__(self, text: str, references: list[tuple[str, str]], prefix: bytes, number: int) -> None:
        """`text`, `references`: see `file_of`. `prefix`: the first bytes of values, up to the indexes of the
        message. Raises SchemaError."""
        self._file: FileDescriptor = file_of(text, references)
        self._prefix = prefix
        self._number = number
        self._known: dict[tuple[int, ...], _Known] = {}
        self._encode = msgspec.json.Encoder().encode
        try:
            first = self._message(_FIRST)
        except (ValueError, RecursionError, Error) as error:
            raise SchemaError(str(error)) from None
        self.head = first.head
        self.weight = len(text) + sum(len(each) for _, each in references)
        """Bytes of Avro text that would take as much memory."""
        self.weight += _BYTES_OF_FIELD * first.reader.fields * _MOST_MESSAGES

    def split(self, value: bytes) -> Split:
        """Split a value. Raises UndecodableRecord for bytes that do not fit the schema."""
        try:
            path, begin = indexes_at(value, len(self._prefix))
            known = self._known.get(path) or self._message(path)
            message = known.kind.FromString(value[begin:])
            return Split(known.head, self._encode(known.reader.read(message)))
        except (Error, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise UndecodableRecord(
                f"the bytes do not match their schema ({self._number}), or are ambiguous: {error}"
            ) from None

    def _message(self, path: tuple[int, ...]) -> _Known:
        """Prepare the message with these indexes. Raises ValueError or SchemaError."""
        message = message_of(self._file, path)
        reader = MessageReader(message)
        head = Head(self._prefix, msgspec.json.encode(reader.schema), closes=None)
        if len(self._known) >= _MOST_MESSAGES:
            self._known.clear()
        known = self._known[path] = _Known(head, GetMessageClass(message), reader)
        return known
