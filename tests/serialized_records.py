"""Records of Debezium's JSON written anew by confluent_kafka's own serializers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from avro_records import avro_schema, datum, inferred
from captured import CapturedRecord
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from servers.schema_registry import Registry

from worker.formats.debezium.connect.schema import Envelopes

__all__ = ["SerializedWriter", "json_schema"]

_JSON_TYPES = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), "integer"),
    **dict.fromkeys(("float", "double"), "number"),
    **dict.fromkeys(("string", "bytes", "unknown"), "string"),
    "boolean": "boolean",
}


def json_schema(told: Mapping[str, Any], *, has_meanings: bool = True) -> dict[str, Any]:
    """The JSON Schema that JsonSchemaData makes of a schema of Connect's JSON.

    `has_meanings`: whether it says what numbers and texts are to Connect."""
    return _json_schema(told) if has_meanings else _without_meanings(_json_schema(told))


def _without_meanings(made: Any) -> Any:
    if isinstance(made, list):
        return [_without_meanings(each) for each in made]
    if isinstance(made, dict):
        kept = {key: each for key, each in made.items() if not key.startswith("connect.")}
        return {key: _without_meanings(each) for key, each in kept.items()}
    return made


def _without_odd_decimals(avro: Any) -> Any:
    """fastavro takes no more digits behind the point than there are in all, Java's writers do."""
    if isinstance(avro, list):
        return [_without_odd_decimals(each) for each in avro]
    if not isinstance(avro, dict):
        return avro
    odd = avro.get("logicalType") == "decimal" and avro["scale"] > avro["precision"]
    return {
        key: _without_odd_decimals(each) for key, each in avro.items() if not (odd and key == "logicalType")
    }


def _json_schema(told: Mapping[str, Any]) -> dict[str, Any]:
    kind = told["type"]
    made: dict[str, Any] = {}
    if told.get("name"):
        made["title"] = told["name"]
    if told.get("parameters"):
        made["connect.parameters"] = told["parameters"]
    if told.get("default") is not None:
        made["default"] = told["default"]
    if kind == "struct":
        made["type"] = "object"
        made["properties"] = {
            one["field"]: {"connect.index": place, **_json_schema(one)}
            for place, one in enumerate(told["fields"])
        }
    elif kind == "array":
        made |= {"type": "array", "items": _json_schema(told["items"])}
    elif kind == "map":
        made |= {
            "type": "object",
            "connect.type": "map",
            "additionalProperties": _json_schema(told["values"]),
        }
    else:
        made["type"] = _JSON_TYPES[kind]
        if kind not in ("boolean", "string", "unknown"):
            made["connect.type"] = {"float": "float32", "double": "float64"}.get(kind, kind)
    return {"oneOf": [{"type": "null"}, made]} if told.get("optional") else made


class SerializedWriter:
    """Writes records anew, and registers their schemas."""

    def __init__(
        self, registry: Registry, kind: Literal["AVRO", "JSON"], *, in_headers: bool = False
    ) -> None:
        self._client = SchemaRegistryClient({"url": registry.url})
        self._kind = kind
        self._options: dict[str, Any] = {}
        if in_headers:
            self._options["schema.id.serializer"] = header_schema_id_serializer
        self._known: dict[bytes, tuple[Any, Any]] = {}
        self._envelopes = Envelopes()

    def record(self, record: CapturedRecord) -> CapturedRecord:
        headers = list(record.headers_)
        key = self._value(record, record.key_, MessageField.KEY, headers)
        value = self._value(record, record.value_, MessageField.VALUE, headers)
        return replace(record, key_=key, value_=value, headers_=headers)

    def _value(
        self, record: CapturedRecord, value: bytes | None, field: str, headers: list[Any]
    ) -> bytes | None:
        if value is None:
            return None
        head, payload = self._envelopes.split(value)
        found = json.loads(bytes(payload))
        if found is None:
            return value
        if head is not None and head.schema != b"null":
            schema = head.schema
        else:
            schema = json.dumps({**inferred(found), "optional": False}).encode()
        told, serializer = self._serializer(schema, has_meanings=head is not None)
        written: bytes = serializer(
            datum(told, found) if self._kind == "AVRO" else found,
            SerializationContext(record.topic_, field, headers),
        )
        return written

    def _serializer(self, schema: bytes, *, has_meanings: bool) -> tuple[Any, Any]:
        known = self._known.get(schema)
        if known is None:
            told = json.loads(schema)
            made: Any
            if self._kind == "AVRO":
                avro = _without_odd_decimals(avro_schema(told))
                made = AvroSerializer(self._client, json.dumps(avro), conf=self._options)
            else:
                # A decimal is no number there, whatever its schema says: Connect does not look either.
                options = {**self._options, "validate": False}
                text = json.dumps({"title": "v", **json_schema(told, has_meanings=has_meanings)})
                made = JSONSerializer(text, self._client, conf=options)
            known = self._known[schema] = told, made
        return known
