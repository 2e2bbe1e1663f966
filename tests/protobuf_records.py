"""Records of Debezium's JSON with schemas written anew in Protobuf, as Connect's ProtobufConverter does.

What is left of them: names of what is no message, and parameters, are forgotten.

https://github.com/confluentinc/schema-registry/blob/master/protobuf-converter/src/main/java/io/confluent/connect/protobuf/ProtobufData.java
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal
from urllib.parse import quote_plus

from captured import CapturedRecord
from google.protobuf import descriptor_pb2
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from servers.schema_registry import SchemaRegistry

from worker.formats.debezium.connect.schema import Envelopes
from worker.formats.schema_registry.protobuf.descriptors import file_of, message_of

__all__ = ["NullItem", "Nullables", "ProtobufWriter", "forgotten"]

Nullables = Literal["optional", "wrapper", "lost"]
"""`optional.for.nullables`, `wrapper.for.nullables`, or neither of both, as it is by default."""
Told = Mapping[str, Any]

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    **dict.fromkeys(("int8", "int16", "int32"), (_FIELD.TYPE_INT32, "Int32Value")),
    "int64": (_FIELD.TYPE_INT64, "Int64Value"),
    "float": (_FIELD.TYPE_FLOAT, "FloatValue"),
    "double": (_FIELD.TYPE_DOUBLE, "DoubleValue"),
    "boolean": (_FIELD.TYPE_BOOL, "BoolValue"),
    "string": (_FIELD.TYPE_STRING, "StringValue"),
    "bytes": (_FIELD.TYPE_BYTES, "BytesValue"),
}
_CONNECT = "org.apache.kafka.connect.data."
_LOGICAL = {
    f"{_CONNECT}Decimal": (".confluent.type.Decimal", "confluent/type/decimal.proto"),
    f"{_CONNECT}Date": (".google.type.Date", "google/type/date.proto"),
    f"{_CONNECT}Time": (".google.type.TimeOfDay", "google/type/timeofday.proto"),
    f"{_CONNECT}Timestamp": (".google.protobuf.Timestamp", "google/protobuf/timestamp.proto"),
}
_DECIMAL = {
    "type": "struct",
    "name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}],
}
_KEPT = ("VariableScaleDecimal", "Geometry", "Geography", "Point")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def scrubbed(name: str) -> str:
    """`scrub.invalid.names`, of the name of a column or a message."""
    encoded = quote_plus(name)
    encoded = encoded if re.match(r"[A-Za-z]", encoded) else f"x{encoded}"
    return re.sub(r"[^A-Za-z0-9_]", "_", encoded)


# ---- what is left


def forgotten(told: Told, value: Any, *, is_top: bool = True) -> tuple[dict[str, Any], Any]:
    """A schema of Connect's JSON and a value of it, as they come back."""
    kind, name = told["type"], told.get("name") or ""
    left: dict[str, Any] = {"type": kind, "optional": not is_top}
    if name == f"{_CONNECT}Decimal":
        scale = int(told["parameters"]["scale"])
        return {**_DECIMAL, "optional": True}, None if value is None else {"scale": scale, "value": value}
    if name.startswith(_CONNECT) or (kind == "struct" and name.rpartition(".")[2] in _KEPT):
        left["name"] = name
    if kind == "struct":
        found = value or {}
        parts = [
            (scrubbed(one["field"]), *forgotten(one, found.get(one["field"]), is_top=False))
            for one in told["fields"]
        ]
        left["fields"] = [{**schema, "field": field} for field, schema, _ in parts]
        return left, None if value is None else {field: found for field, _, found in parts}
    if kind == "array":
        items = [forgotten(told["items"], each, is_top=False)[1] for each in value or ()]
        left["items"] = forgotten(told["items"], None, is_top=False)[0]
        return left, items
    if kind == "map":
        left["keys"], left["values"] = {"type": "string"}, forgotten(told["values"], None, is_top=False)[0]
        return left, {key: forgotten(told["values"], each)[1] for key, each in (value or {}).items()}
    if kind in ("int8", "int16"):
        left["type"] = "int32"
    return left, value


# ---- the writer


class _File:
    """The schema of one of Connect's schemas."""

    def __init__(self, told: Told, nullables: Nullables) -> None:
        self.nullables = nullables
        namespace, _, name = (told.get("name") or "ConnectDefault1").rpartition(".")
        package = ".".join(map(scrubbed, filter(None, namespace.split("."))))
        self.proto = descriptor_pb2.FileDescriptorProto(name="default", package=package, syntax="proto3")
        self._known: dict[str, str] = {}
        self._unnamed = 0
        self._message(self.proto.message_type.add(), scrubbed(name), f".{package}" if package else "", told)

    def _message(self, made: descriptor_pb2.DescriptorProto, name: str, scope: str, told: Told) -> str:
        made.name, full = name, f"{scope}.{name}"
        if told.get("name"):
            self._known.setdefault(told["name"], full)
        for number, one in enumerate(told["fields"], 1):
            self._field(made, full, one, scrubbed(one["field"]), number)
        return full

    def _field(
        self, made: descriptor_pb2.DescriptorProto, scope: str, told: Told, name: str, number: int
    ) -> None:
        field = made.field.add(name=name, number=number, label=_FIELD.LABEL_OPTIONAL)
        if told["type"] in ("array", "map"):
            field.label = _FIELD.LABEL_REPEATED
        item = told["items"] if told["type"] == "array" else told
        logical = _LOGICAL.get(item.get("name") or "")
        if logical is not None:
            self._typed(field, *logical)
        elif item["type"] in ("struct", "map"):
            field.type = _FIELD.TYPE_MESSAGE
            field.type_name = self._nested(made, scope, item, name)
        else:
            kind, wrapper = _SCALARS[item["type"]]
            is_nullable = told["type"] != "array" and told.get("optional")
            if is_nullable and self.nullables == "wrapper":
                self._typed(field, f".google.protobuf.{wrapper}", "google/protobuf/wrappers.proto")
                return
            field.type = kind
            if is_nullable and self.nullables == "optional":
                field.proto3_optional = True
                field.oneof_index = len(made.oneof_decl)
                made.oneof_decl.add(name=f"_{name}")

    def _nested(self, made: descriptor_pb2.DescriptorProto, scope: str, told: Told, field: str) -> str:
        if told["type"] == "map":
            entry = made.nested_type.add(name=f"ConnectDefault{number_of(made)}Entry")
            self._field(entry, f"{scope}.{entry.name}", told["keys"], "key", 1)
            self._field(entry, f"{scope}.{entry.name}", told["values"], "value", 2)
            return f"{scope}.{entry.name}"
        if told.get("name") in self._known:
            return self._known[told["name"]]
        name = scrubbed((told.get("name") or f"ConnectDefault{number_of(made)}").rpartition(".")[2])
        return self._message(made.nested_type.add(), name + "Message" * (name == field), scope, told)

    def _typed(self, field: descriptor_pb2.FieldDescriptorProto, name: str, file: str) -> None:
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, name
        if file not in self.proto.dependency:
            self.proto.dependency.append(file)


def number_of(made: descriptor_pb2.DescriptorProto) -> int:
    return 2 + len(made.nested_type)


def _fill(message: Message, told: Told, value: Mapping[str, Any]) -> None:
    for one in told["fields"]:
        name, found = scrubbed(one["field"]), value.get(one["field"])
        if found is None:
            continue
        if one["type"] == "array":
            for each in found:
                _add(getattr(message, name), one["items"], each)
        elif one["type"] == "map":
            for key, each in found.items():
                entry = getattr(message, name).add(key=key)
                _set(entry, "value", one["values"], each)
        else:
            _set(message, name, one, found)


class NullItem(ValueError):
    """The converter fails at a NULL within an array."""


def _add(items: Any, told: Told, value: Any) -> None:
    if value is None:
        raise NullItem
    if told["type"] == "struct" or (told.get("name") or "") in _LOGICAL:
        _into(items.add(), told, value)
    else:
        items.append(_scalar(told, value))


def _set(message: Message, name: str, told: Told, value: Any) -> None:
    field = message.DESCRIPTOR.fields_by_name[name]
    if value is None:
        return
    if field.message_type is None:
        setattr(message, name, _scalar(told, value))
    elif (
        field.message_type.full_name.startswith("google.protobuf.")
        and told["type"] != "struct"
        and ((told.get("name") or "") not in _LOGICAL)
    ):
        wrapped = getattr(message, name)
        wrapped.SetInParent()
        wrapped.value = _scalar(told, value)
    else:
        _into(getattr(message, name), told, value)


def _into(message: Any, told: Told, value: Any) -> None:
    message.SetInParent()
    match (told.get("name") or "").removeprefix(_CONNECT):
        case "Decimal":
            message.value, message.scale = base64.b64decode(value), int(told["parameters"]["scale"])
        case "Date":
            day = date(1970, 1, 1) + timedelta(days=value)
            message.year, message.month, message.day = day.year, day.month, day.day
        case "Time":
            seconds, milliseconds = divmod(value, 1000)
            message.hours, message.minutes = divmod(seconds // 60, 60)
            message.seconds, message.nanos = seconds % 60, milliseconds * 1_000_000
        case "Timestamp":
            message.seconds, milliseconds = divmod(value, 1000)
            message.nanos = milliseconds * 1_000_000
        case _:
            _fill(message, told, value)


def _scalar(told: Told, value: Any) -> Any:
    if told["type"] == "bytes":
        return base64.b64decode(value)
    return float(value) if told["type"] in ("float", "double") else value


class ProtobufWriter:
    """Writes records anew, and registers their schemas."""

    def __init__(self, registry: SchemaRegistry, nullables: Nullables = "optional") -> None:
        self._registry = registry
        self._nullables = nullables
        self._known: dict[bytes, tuple[Told, int, type[Message]]] = {}
        self._envelopes = Envelopes()

    def record(self, record: CapturedRecord) -> CapturedRecord:
        return replace(record, key_=self._value(record.key_), value_=self._value(record.value_))

    def _value(self, value: bytes | None) -> bytes | None:
        if value is None:
            return None
        head, payload = self._envelopes.split(value)
        found = json.loads(bytes(payload))
        if head is None or found is None:
            return value
        return self.written(head.schema, found)

    def written(self, schema: bytes, found: Mapping[str, Any]) -> bytes:
        """A value of a schema of Connect's JSON."""
        known = self._known.get(schema)
        if known is None:
            told = json.loads(schema)
            proto = _File(told, self._nullables).proto
            text = base64.b64encode(proto.SerializeToString()).decode()
            number = self._registry.register(f"// {text}", "PROTOBUF", serialized=text)
            known = told, number, GetMessageClass(message_of(file_of(text, []), (0,)))
            self._known[schema] = known
        told, number, kind = known
        message = kind()
        _fill(message, told, found)
        return b"\0" + number.to_bytes(4, "big") + b"\0" + message.SerializeToString()
