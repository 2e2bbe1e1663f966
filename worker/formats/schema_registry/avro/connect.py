"""Convert an Avro schema to the schema that Kafka Connect's JsonConverter would write.

https://github.com/confluentinc/schema-registry/blob/master/avro-data/src/main/java/io/confluent/connect/avro/AvroData.java
(Apicurio's converter is a copy.)"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from worker.formats.schema_registry.avro.schema import AvroSchema, FieldBudget

_TYPES = {
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "bytes": "bytes",
    "fixed": "bytes",
    "string": "string",
    "enum": "string",
    "record": "struct",
    "array": "array",
    "map": "map",
}
_LOGICAL = {
    "date": "org.apache.kafka.connect.data.Date",
    "time-millis": "org.apache.kafka.connect.data.Time",
    "timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
    "time-micros": "io.debezium.time.MicroTime",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
    "local-timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
    "local-timestamp-micros": "io.debezium.time.MicroTimestamp",
    "decimal": "org.apache.kafka.connect.data.Decimal",
}
_DEPTH = 4
"""Depth of an envelope's columns and their arrays' items. Deeper values are read without a schema."""


def connect_schema(schema: AvroSchema) -> bytes:
    """The schema as JSON; `null` if the converter left out Connect's meanings.

    Raises SchemaError if it would be too large, because it repeats each type wherever it is named."""
    if not has_meanings(schema, set()):
        return b"null"
    return msgspec.json.encode(_field(schema.value, _DEPTH, FieldBudget()))


def has_meanings(schema: AvroSchema, met: set[int]) -> bool:
    """Whether any part has a property of Connect (`connect.meta.data`, which is on by default)."""
    if id(schema) in met:
        return False
    met.add(id(schema))
    if schema.meaning or schema.connect_type:
        return True
    parts = [*schema.branches, *(field.type for field in schema.fields)]
    return any(has_meanings(part, met) for part in (*parts, *([schema.items] if schema.items else [])))


def _field(schema: AvroSchema, depth: int, budget: FieldBudget, **names: Any) -> dict[str, Any]:
    """The Connect field for a schema. `names`: further entries from the record that contains it."""
    kind = schema.connect_type or _TYPES.get(schema.kind, "")
    connect: dict[str, Any] = {"type": kind, **names}
    meaning = schema.meaning or _LOGICAL.get(schema.logical or "")
    if meaning:
        connect["name"] = meaning
    if schema.parameters:
        connect["parameters"] = schema.parameters
    budget.take(connect)
    if depth and schema.kind == "record":
        connect["fields"] = [
            _field(
                field.type.value,
                depth - 1,
                budget,
                field=field.name,
                default=_default(field.type.value, field.default),
            )
            for field in schema.fields
        ]
    if depth and schema.kind == "array" and schema.items is not None:
        connect["items"] = _field(schema.items.value, depth - 1, budget)
    return connect


def _default(schema: AvroSchema, default: Any) -> Any:
    """The default in Connect's JSON. Defaults of objects and arrays are not needed here."""
    if default is None:
        default = schema.default
    if isinstance(default, str) and schema.kind in ("bytes", "fixed"):
        try:
            return base64.b64encode(default.encode("latin-1")).decode()
        except UnicodeEncodeError:
            return None
    return None if isinstance(default, dict | list) else default
