"""JSON behind the id of a JSON Schema, as Confluent's JsonSchemaConverter writes it: what the schema is to
Kafka Connect.

https://github.com/confluentinc/schema-registry/blob/master/json-schema-converter/src/main/java/io/confluent/connect/json/JsonSchemaData.java
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from worker.formats.debezium.connect.schema import Head
from worker.formats.schema_registry.avro.schema import SchemaError

__all__ = ["json_head"]

_TYPES = {"integer": "int64", "number": "double", "object": "struct", "float32": "float", "float64": "double"}
_DEPTH = 5


def json_head(text: str, prefix: bytes) -> Head:
    """What values begin with, and the schema of Connect for what follows. Raises SchemaError."""
    try:
        told: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SchemaError(f"no JSON: {error}") from None
    if not isinstance(told, dict):
        raise SchemaError("a JSON Schema is an object")
    schema = b"null" if b'"connect.' not in text.encode() else msgspec.json.encode(_field(told, told, _DEPTH))
    return Head(prefix, schema, closes=b"")


def _field(told: Any, root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    told = _value(told, root)
    kind = told.get("connect.type") or told.get("type")
    found: dict[str, Any] = {"type": _TYPES.get(str(kind), str(kind or ""))}
    if isinstance(told.get("title"), str):
        found["name"] = told["title"]
    parameters = told.get("connect.parameters")
    if isinstance(parameters, dict):
        found["parameters"] = {str(key): str(value) for key, value in parameters.items()}
    properties = told.get("properties")
    if depth and isinstance(properties, dict) and found["type"] == "struct":
        fields = []
        for name, each in properties.items():
            field = _field(each, root, depth - 1)
            fields.append((_index(each, root), {**field, "field": name, "default": _default(each, root)}))
        found["fields"] = [field for _, field in sorted(fields, key=lambda one: one[0])]
    if depth and kind == "array" and told.get("items") is not None:
        found["items"] = _field(told["items"], root, depth - 1)
    return found


def _value(told: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without the null beside it, and where its reference leads."""
    for _ in range(_DEPTH):
        if not isinstance(told, dict):
            return {}
        branches = told.get("oneOf") or told.get("anyOf")
        if isinstance(branches, list):
            told = next((each for each in branches if each != {"type": "null"}), {})
            continue
        reference = told.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return told
        told = root
        for part in reference[2:].split("/"):
            told = told.get(part, {}) if isinstance(told, dict) else {}
    return {}


def _index(told: Any, root: Mapping[str, Any]) -> int:
    for each in (told, _value(told, root)):
        found = each.get("connect.index") if isinstance(each, dict) else None
        if isinstance(found, int):
            return found
    return 1 << 20


def _default(told: Any, root: Mapping[str, Any]) -> Any:
    for each in (told, _value(told, root)):
        found = each.get("default") if isinstance(each, dict) else None
        if found is not None and not isinstance(found, dict | list):
            return found
    return None
