"""Protobuf values that are one value in Kafka Connect's JSON: scalars, and the messages that its converter
makes for numbers, dates and times.

https://github.com/confluentinc/schema-registry/blob/master/protobuf-converter/src/main/java/io/confluent/connect/protobuf/ProtobufData.java
"""

from __future__ import annotations

import base64
from calendar import isleap
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from handlers.values.change_json import json_float

ConnectSchema = Mapping[str, Any]
"""A Connect schema in JSON."""
Read = Callable[[Any], Any]

_TYPE = FieldDescriptor
_KINDS = {
    _TYPE.CPPTYPE_INT32: "int32",
    _TYPE.CPPTYPE_INT64: "int64",
    _TYPE.CPPTYPE_UINT32: "int64",
    _TYPE.CPPTYPE_UINT64: "int64",
    _TYPE.CPPTYPE_FLOAT: "float",
    _TYPE.CPPTYPE_DOUBLE: "double",
    _TYPE.CPPTYPE_BOOL: "boolean",
    _TYPE.CPPTYPE_STRING: "string",
}
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_MOST = 2**63 - 1
_MONTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_GREGORIAN = (1582, 10, 15)
_NANOS = 1_000_000_000


def scalar(field: FieldDescriptor) -> tuple[ConnectSchema, Read]:
    """The schema and reader of a field that is not a message, or of its repeated items."""
    if field.enum_type is not None:
        labels: dict[int, str] = {}
        for value in field.enum_type.values:
            labels.setdefault(value.number, value.name)  # the first of several, as in Java
        return {"type": "string"}, lambda number: labels.get(number, str(number))
    if field.type == _TYPE.TYPE_BYTES:
        return {"type": "bytes"}, _base64
    kind = _KINDS[field.cpp_type]
    if kind in ("float", "double"):
        return {"type": kind}, json_float
    if kind == "string":
        return {"type": kind}, _text
    return {"type": kind}, _signed if field.cpp_type == _TYPE.CPPTYPE_UINT64 else lambda value: value


def leaf(message: Descriptor) -> tuple[ConnectSchema, Read] | None:
    """The schema and reader of a message that is one value in Connect. None if it is a struct."""
    name = message.full_name
    if name in _WRAPPERS:
        inner = message.fields_by_name.get("value")
        if inner is None or inner.message_type is not None or inner.is_repeated:
            return None
        schema, read = scalar(inner)
        return schema, lambda wrapper: read(wrapper.value)
    known = _LOGICAL.get(name)
    if known is None:
        return None
    schema, read, parts = known
    found = {field.name: field.type for field in message.fields if not field.is_repeated}
    return (schema, read) if parts.items() <= found.items() else None


def key_of(field: FieldDescriptor) -> Callable[[Any], str] | None:
    """The conversion of a map's key to text. None if the field cannot be a key."""
    if field.is_repeated or field.message_type is not None or field.type == _TYPE.TYPE_BYTES:
        return None
    if field.type == _TYPE.TYPE_BOOL:
        return lambda value: "true" if value else "false"
    return _text if field.type == _TYPE.TYPE_STRING else str


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _text(value: Any) -> str:
    """Check a text. Raises ValueError for bytes, which Protobuf's former syntax allows in a text."""
    if not isinstance(value, str):
        raise ValueError("a text that is not UTF-8")  # noqa: TRY004 - as for any value that does not fit
    return value


def _signed(value: int) -> int:
    """Check an unsigned number. Raises ValueError if it is too large for Connect."""
    if value > _MOST:
        raise ValueError(f"{value} is beyond 63 bits")
    return value


def _decimal(value: Any) -> Any:
    """The decimal with its own scale, even if the schema has another."""
    return {"scale": value.scale, "value": _base64(value.value)}


def _days(value: Any) -> int:
    """Days since 1970-01-01 of a date in Java's calendar: Julian before 1582-10-15. Raises ValueError."""
    year, month, day = value.year, value.month, value.day
    is_gregorian = (year, month, day) >= _GREGORIAN
    is_long = month == 2 and (isleap(year) if is_gregorian else year % 4 == 0)
    if not (year >= 1 and 1 <= month <= 12 and 1 <= day <= _MONTHS[month - 1] + is_long):
        raise ValueError(f"no date: {year}-{month}-{day}")
    # https://en.wikipedia.org/wiki/Julian_day#Converting_Gregorian_calendar_date_to_Julian_Day_Number
    shift = (14 - month) // 12
    years, months = year + 4800 - shift, month + 12 * shift - 3
    days: int = day + (153 * months + 2) // 5 + 365 * years + years // 4 - 2440588
    return days + (years // 400 - years // 100 - 32045 if is_gregorian else -32083)


def _milliseconds(value: Any) -> int:
    """Milliseconds since midnight. Raises ValueError."""
    hours, minutes, seconds, nanos = value.hours, value.minutes, value.seconds, value.nanos
    if not (0 <= hours <= 24 and 0 <= minutes < 60 and 0 <= seconds <= 60 and 0 <= nanos < _NANOS):
        raise ValueError(f"not a time of day: {hours}:{minutes}:{seconds} and {nanos} ns")
    milliseconds: int = ((hours * 60 + minutes) * 60 + seconds) * 1000 + nanos // 1_000_000
    return milliseconds


def _moment(value: Any) -> int:
    milliseconds: int = value.seconds * 1000 + value.nanos // 1_000_000
    return milliseconds


_INT32, _CONNECT = _TYPE.TYPE_INT32, "org.apache.kafka.connect.data."
_LOGICAL: Mapping[str, tuple[ConnectSchema, Read, Mapping[str, int]]] = {
    "confluent.type.Decimal": (
        {
            "type": "struct",
            "name": "io.debezium.data.VariableScaleDecimal",
            "fields": [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}],
        },
        _decimal,
        {"value": _TYPE.TYPE_BYTES, "scale": _INT32},
    ),
    "google.type.Date": (
        {"type": "int32", "name": f"{_CONNECT}Date"},
        _days,
        dict.fromkeys(("year", "month", "day"), _INT32),
    ),
    "google.type.TimeOfDay": (
        {"type": "int32", "name": f"{_CONNECT}Time"},
        _milliseconds,
        dict.fromkeys(("hours", "minutes", "seconds", "nanos"), _INT32),
    ),
    "google.protobuf.Timestamp": (
        {"type": "int64", "name": f"{_CONNECT}Timestamp"},
        _moment,
        {"seconds": _TYPE.TYPE_INT64, "nanos": _INT32},
    ),
}
"""Name -> (schema, reader, required fields). Other messages may have the same name."""
