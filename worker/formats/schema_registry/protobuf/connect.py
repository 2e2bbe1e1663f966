"""What a message of Protobuf is to Kafka Connect: the schema that its JsonConverter would write, and how its
values are read for that.

https://github.com/confluentinc/schema-registry/blob/master/protobuf-converter/src/main/java/io/confluent/connect/protobuf/ProtobufData.java

The converter keeps what messages are, and forgets what numbers and texts mean. It writes NULL as nothing, as
Protobuf does with 0 and "" where a field has no presence (`optional.for.nullables`).
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from worker.formats.schema_registry.avro.schema import SchemaError

__all__ = ["MessageReader", "reader_of"]

Told = Mapping[str, Any]
Read = Callable[[Any], Any]

_DEPTH = 8
_MOST_FIELDS = 20_000
_KINDS = {
    **dict.fromkeys((FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_ENUM), "int32"),
    **dict.fromkeys(
        (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64),
        "int64",
    ),
    FieldDescriptor.CPPTYPE_FLOAT: "float",
    FieldDescriptor.CPPTYPE_DOUBLE: "double",
    FieldDescriptor.CPPTYPE_BOOL: "boolean",
    FieldDescriptor.CPPTYPE_STRING: "string",
}
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_MEANINGS = {
    "VariableScaleDecimal": ("io.debezium.data.VariableScaleDecimal", {"scale", "value"}),
    **{name: (f"io.debezium.data.geometry.{name}", {"wkb"}) for name in ("Geometry", "Geography", "Point")},
}
"""Messages that are called so, with these fields."""
_ROWS = ("before", "after")
_GREGORIAN = (1582, 10, 15)
_EPOCH = date(1970, 1, 1).toordinal()


class MessageReader:
    """Reads one kind of message. Never changed; threads share it."""

    def __init__(self, message: Descriptor) -> None:
        """Raises SchemaError."""
        self.left = _MOST_FIELDS
        self._strict = not _tells_null(message, _DEPTH) and message.name != "Key"
        """Whether a column at its default may be NULL."""
        self.schema: Told
        self.schema, self.read = self._struct(message, _DEPTH, is_row=message.name == "Value")

    def _struct(self, message: Descriptor, depth: int, *, is_row: bool) -> tuple[Told, Read]:
        if not depth:
            raise SchemaError(f"messages within messages, {_DEPTH} deep: {message.full_name}")
        parts = []
        fields = []
        for field in message.fields:
            self.left -= 1
            if self.left < 0:
                raise SchemaError(f"more than {_MOST_FIELDS} fields")
            told, read = self._field(field, depth, is_row=is_row)
            fields.append({**told, "field": field.name, "optional": True})
            parts.append((field.name, read))
        name, needed = _MEANINGS.get(message.name, ("", set[str]()))
        told = {"type": "struct", "fields": fields}
        if name and needed <= set(message.fields_by_name):
            told["name"] = name
        return told, lambda value: {name: read(value) for name, read in parts}

    def _field(self, field: FieldDescriptor, depth: int, *, is_row: bool) -> tuple[Told, Read]:
        """The schema of a field, and how it is read off the message that it is in."""
        name = field.name
        if field.is_repeated:
            return self._repeated(field, depth, is_row=is_row)
        if field.message_type is not None:
            told, read = self._message(field.message_type, depth, is_row=name in _ROWS)
            return told, lambda value: read(getattr(value, name)) if value.HasField(name) else None
        told, read = _scalar(field)
        if field.has_presence:
            return told, lambda value: read(getattr(value, name)) if value.HasField(name) else None
        if not self._strict:
            return told, lambda value: read(getattr(value, name))
        default = field.default_value
        if not is_row:  # of a source: texts that are not there
            return told, lambda value: None if (found := getattr(value, name)) == "" else read(found)

        def certain(value: Message) -> Any:
            found = getattr(value, name)
            if found == default:
                raise ValueError(
                    f"{name} is {default!r} or NULL, the record does not tell: let the connector write it "
                    "with value.converter.optional.for.nullables=true"
                )
            return read(found)

        return told, certain

    def _repeated(self, field: FieldDescriptor, depth: int, *, is_row: bool) -> tuple[Told, Read]:
        name, kind = field.name, field.message_type
        if kind is not None and _is_map(kind):
            key, item = kind.fields_by_name["key"], kind.fields_by_name["value"]
            of_key = _key(key)
            if kind.GetOptions().map_entry:
                told, of_item = self._item(item, depth)

                def read_all(value: Message) -> Any:
                    return {of_key(one): of_item(other) for one, other in getattr(value, name).items()}
            else:
                told, of_entry = self._field(item, depth - 1, is_row=False)

                def read_all(value: Message) -> Any:
                    return {of_key(each.key): of_entry(each) for each in getattr(value, name)}

            schema = {"type": "map", "keys": {"type": "string"}, "values": told}
        else:
            told, read = self._item(field, depth)
            schema = {"type": "array", "items": told}

            def read_all(value: Message) -> Any:
                return [read(each) for each in getattr(value, name)]

        if not is_row:
            return schema, read_all

        def certain(value: Message) -> Any:
            if not getattr(value, name):
                raise ValueError(
                    f"{name} is empty or NULL, the record does not tell: leave the column out in the "
                    "connector (column.exclude.list), or let it write Avro"
                )
            return read_all(value)

        return schema, certain

    def _item(self, field: FieldDescriptor, depth: int) -> tuple[Told, Read]:
        if field.message_type is None:
            return _scalar(field)
        return self._message(field.message_type, depth, is_row=False)

    def _message(self, message: Descriptor, depth: int, *, is_row: bool) -> tuple[Told, Read]:
        known = _LOGICAL.get(message.full_name)
        if known is not None:
            return known
        if message.full_name in _WRAPPERS:
            told, read = _scalar(message.fields_by_name["value"])
            return told, lambda wrapper: read(wrapper.value)
        return self._struct(message, depth - 1, is_row=is_row)


def reader_of(message: Descriptor) -> MessageReader:
    """How values of a message are read. Raises SchemaError."""
    return MessageReader(message)


def _tells_null(message: Descriptor, depth: int) -> bool:
    """Whether NULL of any scalar in it can be told from its default."""
    for field in message.fields:
        kind = field.message_type
        if kind is None and field.has_presence:
            return True
        if kind is not None and kind.full_name in _WRAPPERS:
            return True
        if kind is not None and depth and kind.full_name not in _LOGICAL and _tells_null(kind, depth - 1):
            return True
    return False


def _is_map(message: Descriptor) -> bool:
    """A map, or what the converter makes of one of Connect's."""
    names = [field.name for field in message.fields]
    return bool(message.GetOptions().map_entry) or (
        message.name.endswith("Entry") and names == ["key", "value"]
    )


# ---- values


def _scalar(field: FieldDescriptor) -> tuple[Told, Read]:
    if field.enum_type is not None:
        labels = {value.number: value.name for value in field.enum_type.values}
        return {"type": "string"}, lambda number: labels.get(number, str(number))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return {"type": "bytes"}, _base64
    kind = _KINDS[field.cpp_type]
    return {"type": kind}, _number if kind in ("float", "double") else _as_it_is


def _key(field: FieldDescriptor) -> Callable[[Any], str]:
    if field.type == FieldDescriptor.TYPE_BOOL:
        return lambda value: "true" if value else "false"
    return str


def _as_it_is(value: Any) -> Any:
    return value


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _number(value: float) -> Any:
    """As Connect's JSON has it."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _decimal(value: Any) -> Any:
    """With a scale of its own, whatever the schema says."""
    return {"scale": value.scale, "value": _base64(value.value)}


def _days(value: Any) -> int:
    """Of a date as Java's calendar counts: Julian before 1582-10-15. Raises ValueError."""
    year, month, day = value.year, value.month, value.day
    if (year, month, day) >= _GREGORIAN:
        return int(date(year, month, day).toordinal()) - _EPOCH
    if not (year >= 1 and 1 <= month <= 12 and 1 <= day <= 31):
        raise ValueError(f"no date: {year}-{month}-{day}")
    # https://en.wikipedia.org/wiki/Julian_day#Converting_Julian_calendar_date_to_Julian_Day_Number
    shift = (14 - month) // 12
    years, months = year + 4800 - shift, month + 12 * shift - 3
    days: int = day + (153 * months + 2) // 5 + 365 * years + years // 4 - 32083 - 2440588
    return days


def _milliseconds(value: Any) -> int:
    if value.hours == 24 and not (value.minutes or value.seconds or value.nanos):
        return 86_400_000
    seconds = (value.hours * 60 + value.minutes) * 60 + value.seconds
    milliseconds: int = seconds * 1000 + value.nanos // 1_000_000
    return milliseconds


def _moment(value: Any) -> int:
    milliseconds: int = value.seconds * 1000 + value.nanos // 1_000_000
    return milliseconds


_LOGICAL: Mapping[str, tuple[Told, Read]] = {
    "confluent.type.Decimal": (
        {
            "type": "struct",
            "name": "io.debezium.data.VariableScaleDecimal",
            "fields": [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}],
        },
        _decimal,
    ),
    "google.type.Date": ({"type": "int32", "name": "org.apache.kafka.connect.data.Date"}, _days),
    "google.type.TimeOfDay": (
        {"type": "int32", "name": "org.apache.kafka.connect.data.Time"},
        _milliseconds,
    ),
    "google.protobuf.Timestamp": (
        {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"},
        _moment,
    ),
}
