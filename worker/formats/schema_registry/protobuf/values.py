"""Convert the bytes after a Protobuf schema's id to Connect's JSON."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message import Error, Message
from google.protobuf.message_factory import GetMessageClass

from worker.formats.debezium.connect.schema import Head, Split
from worker.formats.interface import UndecodableRecord
from worker.formats.schema_registry.avro.schema import SchemaError
from worker.formats.schema_registry.protobuf.connect import MessageReader
from worker.formats.schema_registry.protobuf.descriptors import file_of, indexes_at, message_of

_FIRST = (0,)
_MOST_MESSAGES = 4
"""Most messages of one schema that are remembered. Debezium's schemas have one."""
_BYTES_OF_FIELD = 70
"""A tenth of the memory for one field."""


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
        self.weight = len(text) + sum(len(told) for _, told in references)
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
