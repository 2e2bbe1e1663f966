"""The Avro schema of Alibaba DTS change records, with the fields in encoding order.

DTS publishes it: https://github.com/LioRoger/subscribe_example/blob/master/avro/Record.avsc. A Kafka value is
one `Record` in Avro's binary encoding, without a schema id before it."""

from __future__ import annotations

from typing import Any

import msgspec

from worker.formats.schema_registry.avro.schema import AvroField, AvroSchema, parse

_NAMESPACE = "com.alibaba.dts.formats.avro"

SOURCE_TYPES = (
    "MySQL", "Oracle", "SQLServer", "PostgreSQL", "MongoDB", "Redis", "DB2", "PPAS", "DRDS", "HBASE", "HDFS",
    "FILE", "OTHER",
)  # fmt: skip
OPERATIONS = (
    "INSERT", "UPDATE", "DELETE", "DDL", "BEGIN", "COMMIT", "ROLLBACK", "ABORT", "HEARTBEAT", "CHECKPOINT",
    "COMMAND", "FILL", "FINISH", "CONTROL", "RDB", "NOOP", "INIT",
)  # fmt: skip
VALUES = (
    "Integer", "Character", "Decimal", "Float", "Timestamp", "DateTime", "TimestampWithTimeZone",
    "BinaryGeometry", "TextGeometry", "BinaryObject", "TextObject", "EmptyObject",
)  # fmt: skip
"""The classes of a column's value: branches 1 to 12 of its union; branch 0 is null."""


def _record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "namespace": _NAMESPACE,
        "fields": [{"name": field, "type": type_} for field, type_ in fields.items()],
    }


def _enum(name: str, symbols: tuple[str, ...]) -> dict[str, Any]:
    return {"type": "enum", "name": name, "namespace": _NAMESPACE, "symbols": list(symbols)}


_PART = ["null", "int"]
_DATE_TIME = dict.fromkeys(("year", "month", "day", "hour", "minute", "second", "millis"), _PART)
_VALUE_TYPES: dict[str, dict[str, Any]] = {
    "Integer": _record("Integer", precision="int", value="string"),
    "Character": _record("Character", charset="string", value="bytes"),
    "Decimal": _record("Decimal", value="string", precision="int", scale="int"),
    "Float": _record("Float", value="double", precision="int", scale="int"),
    "Timestamp": _record("Timestamp", timestamp="long", millis="int"),
    "DateTime": _record("DateTime", **_DATE_TIME),
    "TimestampWithTimeZone": _record(
        "TimestampWithTimeZone", value=f"{_NAMESPACE}.DateTime", timezone="string"
    ),
    "BinaryGeometry": _record("BinaryGeometry", type="string", value="bytes"),
    "TextGeometry": _record("TextGeometry", type="string", value="string"),
    "BinaryObject": _record("BinaryObject", type="string", value="bytes"),
    "TextObject": _record("TextObject", type="string", value="string"),
    "EmptyObject": _enum("EmptyObject", ("NULL", "NONE")),
}
_IMAGE = ["null", *(_VALUE_TYPES[name] for name in VALUES)]
_NAMED_IMAGE = ["null", *(f"{_NAMESPACE}.{name}" for name in VALUES)]
_FIELD = _record("Field", name="string", dataTypeNumber="int")

RECORD = _record(
    "Record",
    version="int",
    id="long",
    sourceTimestamp="long",
    sourcePosition="string",
    safeSourcePosition="string",
    sourceTxid="string",
    source=_record("Source", sourceType=_enum("SourceType", SOURCE_TYPES), version="string"),
    operation=_enum("Operation", OPERATIONS),
    objectName=["null", "string"],
    processTimestamps=["null", {"type": "array", "items": "long"}],
    tags={"type": "map", "values": "string"},
    fields=["null", "string", {"type": "array", "items": _FIELD}],
    beforeImages=["null", "string", {"type": "array", "items": _IMAGE}],
    afterImages=["null", "string", {"type": "array", "items": _NAMED_IMAGE}],
    bornTimestamp="long",
)
RECORD_BEFORE_BORN_TIMESTAMP = {**RECORD, "fields": RECORD["fields"][:-1]}
"""The schema of older streams: all fields except the last."""


_fields = parse(msgspec.json.encode(RECORD)).fields


def part(fields: tuple[AvroField, ...]) -> AvroSchema:
    """A record schema of consecutive fields. Its bytes are the bytes of these fields."""
    return AvroSchema("record", fields=fields)


LEADING = (*_fields[:6], *_fields[6].type.fields, *_fields[7:9])
"""All fields up to `objectName`. The two fields of `source` replace `source`."""
TAGS = _fields[9:11]
"""`processTimestamps` and `tags`."""
FIELDS = _fields[11].type
CLASSES: tuple[AvroSchema, ...] = _fields[12].type.branches[2].items.branches  # type: ignore[union-attr]
"""Null, then the classes of VALUES."""
