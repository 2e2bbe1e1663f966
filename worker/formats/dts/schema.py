"""The Avro schema of Alibaba DTS change records, in encoding order, and the types of their columns."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, NamedTuple

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


class Kind(Enum):
    """The kind of a column. It decides how to read a value if the value's class is not enough."""

    PLAIN = auto()
    """The class of the value is enough."""
    SINGLE = auto()
    BIT = auto()
    BOOLEAN = auto()
    DATE = auto()
    DATETIME = auto()
    """A time without a zone."""
    TIMESTAMP = auto()
    """MySQL's TIMESTAMP, whose zero date is 0 seconds."""
    INSTANT = auto()
    """PostgreSQL's time in UTC."""
    TIME = auto()
    YEAR = auto()
    JSON = auto()
    SET = auto()
    GEOMETRY = auto()


class _ColumnType(NamedTuple):
    kind: Kind
    text: str | None
    """MySQL's spelling. None if the values decide: then the type is `of_text` or `of_bytes`."""
    of_text: str | None = None
    of_bytes: str | None = None


UNKNOWN_TYPE = _ColumnType(Kind.PLAIN, None)
"""The type for a number that is not in the table."""


def _type(text: str, kind: Kind = Kind.PLAIN) -> _ColumnType:
    return _ColumnType(kind, text)


# A record does not contain a type's digits. A Decimal has the precision and scale of its value (2 and 0 for
# 11.00 of a decimal(8,2)), and fractional seconds are in micros. So these are MySQL's widest types.
_DECIMAL = _type("decimal(65,30)")
_TIMESTAMP = _type("timestamp(6)", Kind.TIMESTAMP)
_DATETIME = _type("datetime(6)", Kind.DATETIME)
_DATE = _type("date", Kind.DATE)
_TIME = _type("time(6)", Kind.TIME)
_JSON = _type("json", Kind.JSON)
_VARIABLE = _ColumnType(Kind.PLAIN, None, "varchar", "varbinary")

# The column types of MySQL's protocol, except NULL (6), which has no values:
# https://dev.mysql.com/doc/dev/mysql-server/latest/field__types_8h.html
_MYSQL: Mapping[int, _ColumnType] = {
    0: _DECIMAL,
    1: _type("tinyint"),
    2: _type("smallint"),
    3: _type("int"),
    4: _type("float", Kind.SINGLE),
    5: _type("double"),
    7: _TIMESTAMP,
    8: _type("bigint"),
    9: _type("mediumint"),
    10: _DATE,
    11: _TIME,
    12: _DATETIME,
    13: _type("year", Kind.YEAR),
    14: _DATE,
    15: _VARIABLE,
    16: _type("bit(64)", Kind.BIT),
    17: _TIMESTAMP,
    18: _DATETIME,
    19: _TIME,
    245: _JSON,
    246: _DECIMAL,
    247: _type("enum"),
    248: _type("set", Kind.SET),
    249: _ColumnType(Kind.PLAIN, None, "tinytext", "tinyblob"),
    250: _ColumnType(Kind.PLAIN, None, "mediumtext", "mediumblob"),
    251: _ColumnType(Kind.PLAIN, None, "longtext", "longblob"),
    252: _ColumnType(Kind.PLAIN, None, "text", "blob"),
    253: _VARIABLE,
    254: _VARIABLE,  # a char without its length would be char(1)
    255: _type("geometry", Kind.GEOMETRY),
}
# Object ids of PostgreSQL's built-in types (its catalog/pg_type.dat).
_POSTGRESQL: Mapping[int, _ColumnType] = {
    16: _type("boolean", Kind.BOOLEAN),
    17: _type("longblob"),
    20: _type("bigint"),
    21: _type("smallint"),
    23: _type("int"),
    25: _type("longtext"),
    114: _JSON,
    700: _type("float", Kind.SINGLE),
    701: _type("double"),
    1042: _type("varchar"),
    1043: _type("varchar"),
    1082: _DATE,
    1083: _TIME,
    1114: _DATETIME,
    1184: _type("timestamp(6)", Kind.INSTANT),
    1700: _DECIMAL,
    2950: _type("uuid"),
    3802: _JSON,
}
_SOURCES = {"MySQL": _MYSQL, "DRDS": _MYSQL, "PostgreSQL": _POSTGRESQL}


def column_types(source_type: str) -> Mapping[int, _ColumnType]:
    """dataTypeNumber -> type, for this kind of source. Raises ValueError for an unsupported source."""
    try:
        return _SOURCES[source_type]
    except KeyError:
        raise ValueError(
            f"a stream of {source_type}: only streams of {', '.join(_SOURCES)} can be read"
        ) from None
