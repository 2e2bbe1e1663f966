"""Convert Protobuf messages to Kafka Connect: the schema that its JsonConverter would write, and a reader of
values.

https://github.com/confluentinc/schema-registry/blob/master/protobuf-converter/src/main/java/io/confluent/connect/protobuf/ProtobufData.java

The converter keeps the meaning of messages, but loses that of numbers and texts. It omits NULL, and Protobuf
also omits 0 and "" if a field has no presence (`optional.for.nullables`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from worker.formats.schema_registry.avro.schema import SchemaError, open_budget, take
from worker.formats.schema_registry.protobuf.leaves import ConnectSchema, Read, key_of, leaf, scalar

_DEPTH = 32
_MOST_FIELDS = 20_000
_OF_STRUCT, _OF_FIELD = 64, 32
"""Least bytes of a struct in memory, and of each field without its name."""
_MEANINGS = {
    "VariableScaleDecimal": ("io.debezium.data.VariableScaleDecimal", {"scale", "value"}),
    **{name: (f"io.debezium.data.geometry.{name}", {"wkb"}) for name in ("Geometry", "Geography", "Point")},
}
"""Message name -> (its meaning, the fields that it must have)."""
_ROWS = ("before", "after")
_NO_ROWS = re.compile(r"\w*Key|Envelope|\w*Heartbeat|SchemaChangeValue|TransactionMetadataValue|MessageValue")
"""Debezium's own messages without columns, and keys, whose columns are never NULL."""
_MAP = re.compile(r"ConnectDefault\d+Entry")
"""The converter's name for the entries of a Connect map."""


class _Kind(NamedTuple):
    """The schema and reader of a message or an item."""

    schema: ConnectSchema
    read: Read
    fields: int
    """Number of fields in the schema, including nested ones."""


class MessageReader:
    """A reader of one kind of message. Immutable, so threads share it."""

    def __init__(self, message: Descriptor) -> None:
        """Raises SchemaError if the message is recursive or too large."""
        name, fields = message.name, message.fields_by_name
        is_key = name.endswith("Key")
        self._strict = not (is_key or _distinguishes_null(message, set()))
        """Whether a column at its default may be NULL."""
        is_row = not (_NO_ROWS.fullmatch(name) or {"op", "source"} <= set(fields))
        self._structs: dict[tuple[str, bool], _Kind | None] = {}
        kind = self._struct(message, is_row=is_row)
        self.schema = kind.schema
        self.fields = kind.fields
        self._read = kind.read

    def read(self, message: Any) -> Any:
        """Convert a message to the form of Connect's JSON. Raises ValueError."""
        open_budget()
        return self._read(message)

    def _struct(self, message: Descriptor, *, is_row: bool) -> _Kind:
        key = message.full_name, is_row
        if key in self._structs:
            known = self._structs[key]
            if known is None:
                raise SchemaError(f"a message contains itself: {message.full_name}")
            return known
        if len(self._structs) >= _DEPTH * _DEPTH:
            raise SchemaError(f"more than {_DEPTH * _DEPTH} messages")
        self._structs[key] = None
        fields, parts, count, size = [], [], 0, _OF_STRUCT
        for field in message.fields:
            kind = self._field(field, is_row=is_row)
            count += 1 + kind.fields
            if count > _MOST_FIELDS:
                raise SchemaError(f"more than {_MOST_FIELDS} fields")
            fields.append({**kind.schema, "field": field.name, "optional": True})
            parts.append((field.name, kind.read))
            size += _OF_FIELD + len(field.name)
        schema: dict[str, Any] = {"type": "struct", "fields": fields}
        # The name ends in "Message" if a column has the same name.
        name, needed = _MEANINGS.get(message.name.removesuffix("Message"), ("", set[str]()))
        if name and needed <= set(message.fields_by_name):
            schema["name"] = name
        made = self._structs[key] = _Kind(schema, _struct_reader(parts, size), count)
        return made

    def _field(self, field: FieldDescriptor, *, is_row: bool) -> _Kind:
        """The schema of a field, and a reader that takes the message with the field."""
        name = field.name
        if field.is_repeated:
            return self._repeated(field, is_row=is_row)
        kind = self._item(field, is_row=name in _ROWS)
        read = kind.read
        if field.has_presence:
            # Called through the class, because a field may be named HasField.
            return kind._replace(
                read=lambda value: read(getattr(value, name)) if type(value).HasField(value, name) else None
            )
        if not self._strict:
            return kind._replace(read=lambda value: read(getattr(value, name)))
        default = field.default_value
        if not is_row:  # in a source, an empty text means a missing one
            return kind._replace(
                read=lambda value: None if (found := getattr(value, name)) == "" else read(found)
            )

        def certain(value: Any) -> Any:
            found = getattr(value, name)
            if found == default:
                raise ValueError(
                    f"{name} is {default!r} or NULL, but the record does not say which: let the connector "
                    "write it with value.converter.optional.for.nullables=true"
                )
            return read(found)

        return kind._replace(read=certain)

    def _repeated(self, field: FieldDescriptor, *, is_row: bool) -> _Kind:
        kind = self._map(field, is_row=is_row) or self._array(field)
        if not is_row:
            return kind
        name, read_all = field.name, kind.read

        def certain(value: Any) -> Any:
            if not getattr(value, name):
                raise ValueError(
                    f"{name} is empty or NULL, but the record does not say which: leave the column out in "
                    "the connector (column.exclude.list), or let it write Avro"
                )
            return read_all(value)

        return kind._replace(read=certain)

    def _array(self, field: FieldDescriptor) -> _Kind:
        name, item = field.name, self._item(field)
        read = item.read
        return _Kind(
            {"type": "array", "items": item.schema},
            lambda value: [read(each) for each in getattr(value, name)],
            1 + item.fields,
        )

    def _map(self, field: FieldDescriptor, *, is_row: bool) -> _Kind | None:
        """The schema and reader of a map. None if the field is an array."""
        entry, name = field.message_type, field.name
        if entry is None or not (entry.GetOptions().map_entry or _MAP.fullmatch(entry.name)):
            return None
        parts = entry.fields_by_name
        if {*parts} != {"key", "value"} or (of_key := key_of(parts["key"])) is None:
            return None
        if entry.GetOptions().map_entry:
            item = self._item(parts["value"])

            def read_all(value: Any) -> Any:
                return {of_key(one): item.read(other) for one, other in getattr(value, name).items()}
        else:
            item = self._field(parts["value"], is_row=is_row)

            def read_all(value: Any) -> Any:
                return {of_key(each.key): item.read(each) for each in getattr(value, name)}

        schema = {"type": "map", "keys": {"type": "string"}, "values": item.schema}
        return _Kind(schema, read_all, 1 + item.fields)

    def _item(self, field: FieldDescriptor, *, is_row: bool = False) -> _Kind:
        """The schema and reader of a field's value, or of one item of a repeated field."""
        message = field.message_type
        found = scalar(field) if message is None else leaf(message)
        if found is None:
            return self._struct(message, is_row=is_row)
        return _Kind(*found, 0)


def _struct_reader(parts: Sequence[tuple[str, Read]], size: int) -> Read:
    def read(value: Any) -> Any:
        take(size)
        return {name: part(value) for name, part in parts}

    return read


def _distinguishes_null(message: Descriptor, met: set[str]) -> bool:
    """Whether the message distinguishes NULL from the default for any of its scalars."""
    met.add(message.full_name)
    for field in message.fields:
        kind = field.message_type
        if kind is None and field.has_presence:
            return True
        if kind is None or kind.full_name in met:
            continue
        found = leaf(kind)
        if found is None and _distinguishes_null(kind, met):
            return True
        if found is not None and kind.name.endswith("Value"):
            return True
    return False
