"""Records of Debezium's JSON written anew in Avro, as Kafka Connect's AvroConverter does, with fastavro."""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import fastavro
from captured import CapturedRecord
from servers.schema_registry import Registry

from worker.formats.debezium.connect.schema import Envelopes

__all__ = ["AvroWriter", "avro_schema", "framed"]

_PRIMITIVES = {
    "boolean": "boolean",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
    "bytes": "bytes",
    "string": "string",
    "unknown": "string",
}
_LOGICAL = {
    "org.apache.kafka.connect.data.Decimal": "decimal",
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
}


def framed(number: int, avro: bytes, id_bytes: int = 4) -> bytes:
    """Confluent's wire format, and that of Apicurio's converters."""
    return b"\0" + number.to_bytes(id_bytes, "big") + avro


def avro_schema(told: Mapping[str, Any], known: dict[str, Any] | None = None) -> Any:
    """The Avro schema that AvroData makes of a schema of Connect's JSON."""
    known = {} if known is None else known
    made = _type(told, known)
    if not told.get("optional"):
        return made
    return [made, "null"] if told.get("default") is not None else ["null", made]


def _type(told: Mapping[str, Any], known: dict[str, Any]) -> Any:
    properties: dict[str, Any] = {}
    if told.get("name") and told["type"] != "struct":
        properties["connect.name"] = told["name"]
        properties["connect.version"] = 1
    if told.get("parameters"):
        properties["connect.parameters"] = told["parameters"]
    if told.get("default") is not None:
        properties["connect.default"] = told["default"]
    kind = told["type"]
    if kind == "struct":
        name = told.get("name") or f"ConnectDefault{len(known)}"
        if name in known and known[name] == told["fields"]:
            return name
        if name in known:
            name = f"{name}{len(known)}"
        known[name] = told["fields"]
        fields = []
        for one in told["fields"]:
            field: dict[str, Any] = {"name": one["field"], "type": avro_schema(one, known)}
            if one.get("default") is not None:
                field["default"] = _default(one)
            elif one.get("optional"):
                field["default"] = None
            fields.append(field)
        return {
            "type": "record",
            "name": name,
            "fields": fields,
            "connect.name": told.get("name"),
            **properties,
        }
    if kind == "array":
        return {"type": "array", "items": avro_schema(told["items"], known), **properties}
    if kind == "map":
        return {"type": "map", "values": avro_schema(told["values"], known), **properties}
    if kind in ("int8", "int16"):
        properties["connect.type"] = kind
    logical = _LOGICAL.get(told.get("name") or "")
    if logical == "decimal":
        precision = told["parameters"].get("connect.decimal.precision", "64")
        properties |= {"scale": int(told["parameters"]["scale"]), "precision": int(precision)}
    if logical:
        properties["logicalType"] = logical
    return {"type": _PRIMITIVES[kind], **properties} if properties else _PRIMITIVES[kind]


def _default(told: Mapping[str, Any]) -> Any:
    if told["type"] == "bytes":
        return base64.b64decode(told["default"]).decode("latin-1")
    return told["default"]


def datum(told: Mapping[str, Any], value: Any) -> Any:
    """What fastavro is to write for a value of Connect's JSON."""
    made = value
    match told["type"] if value is not None else None:
        case "struct":
            made = {one["field"]: datum(one, value.get(one["field"])) for one in told["fields"]}
        case "array":
            made = [datum(told["items"], item) for item in value]
        case "map":
            made = {key: datum(told["values"], item) for key, item in value.items()}
        case "bytes":
            made = base64.b64decode(value)
        case "float" | "double":
            made = float(value)
    return made


# ---- JSON without a schema: its own, as connect.meta.data=false would leave it


def inferred(value: Any) -> dict[str, Any]:
    """A schema of Connect's JSON for a value that has none."""
    found: dict[str, Any] = {"optional": True}
    match value:
        case bool():
            found["type"] = "boolean"
        case int():
            found["type"] = "int64"
        case float():
            assert math.isfinite(value)
            found["type"] = "double"
        case list():
            items = inferred(None)
            for item in value:
                items = _both(items, inferred(item))
            found |= {"type": "array", "items": items}
        case dict():
            found |= {"type": "struct", "fields": [{**inferred(v), "field": k} for k, v in value.items()]}
        case str():
            found["type"] = "string"
        case _:
            found["type"] = "unknown"
    return found


def _both(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """For values of either."""
    if "unknown" in (one["type"], other["type"]):
        return one if other["type"] == "unknown" else other
    if one["type"] == other["type"] == "struct":
        fields = {field["field"]: field for field in one["fields"]}
        for field in other["fields"]:
            name = field["field"]
            fields[name] = {**_both(fields.get(name, field), field), "field": name}
        return {**one, "fields": list(fields.values())}
    if one["type"] == other["type"] == "array":
        return {**one, "items": _both(one["items"], other["items"])}
    assert one["type"] == other["type"] or {one["type"], other["type"]} == {"int64", "double"}
    return one if one["type"] == other["type"] else {**one, "type": "double"}


class AvroWriter:
    """Writes records anew, and registers their schemas."""

    def __init__(self, registry: Registry, id_bytes: int = 4) -> None:
        self._registry = registry
        self._id_bytes = id_bytes
        self._known: dict[bytes, tuple[int, Any, Any]] = {}
        self._envelopes = Envelopes()

    def record(self, record: CapturedRecord) -> CapturedRecord:
        return replace(record, key_=self.value(record.key_), value_=self.value(record.value_))

    def value(self, value: bytes | None) -> bytes | None:
        """A key or a value in JSON; one that is none is left as it is."""
        if value is None:
            return None
        head, payload = self._envelopes.split(value)
        try:
            told = json.loads(bytes(payload))
        except ValueError:
            return value
        if told is None:
            return value
        if head is not None and head.schema != b"null":
            return self.written(head.schema, told)
        return self.written(json.dumps({**inferred(told), "optional": False}).encode(), told)

    def written(self, schema: bytes, value: Any) -> bytes:
        """`schema`: of Connect's JSON."""
        found = self._known.get(schema)
        if found is None:
            told = json.loads(schema)
            avro = avro_schema(told)
            number = self._registry.register(avro)
            # fastavro would make decimals and dates of what is plain in Connect's JSON.
            found = self._known[schema] = number, told, fastavro.parse_schema(_without_logical(avro))
        number, told, parsed = found
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, datum(told, value))
        return framed(number, out.getvalue(), self._id_bytes)


def _without_logical(avro: Any) -> Any:
    if isinstance(avro, list):
        return [_without_logical(each) for each in avro]
    if isinstance(avro, dict):
        return {key: _without_logical(each) for key, each in avro.items() if key != "logicalType"}
    return avro
