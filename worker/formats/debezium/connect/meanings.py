"""The narrowest types of MySQL and PostgreSQL for the values of a Kafka Connect schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from worker.formats.debezium.connect.schema import Field

DECIMAL = "org.apache.kafka.connect.data.Decimal"
SOURCE = "__debezium.source.column."
"""Prefix of the parameters with the source's own type (`datatype.propagate.source.type`)."""


class Types(NamedTuple):
    mysql: str | None
    """None if MySQL has no type for these values."""
    postgresql: str


_NOT_KNOWN = Types(None, "text")
_BY_MEANING: Mapping[str, Types] = {
    **dict.fromkeys(
        (
            *("io.debezium.time.Date", "io.debezium.time.IsoDate"),
            "org.apache.kafka.connect.data.Date",
        ),
        Types("date", "date"),
    ),
    **dict.fromkeys(
        ("io.debezium.time.Timestamp", "org.apache.kafka.connect.data.Timestamp"),
        Types("datetime(3)", "timestamp"),
    ),
    **dict.fromkeys(
        (f"io.debezium.time.{name}Timestamp" for name in ("Micro", "Nano", "Iso")),
        Types("datetime(6)", "timestamp"),
    ),
    **dict.fromkeys(
        ("io.debezium.time.Time", "org.apache.kafka.connect.data.Time"), Types("time(3)", "time")
    ),
    **dict.fromkeys(
        (f"io.debezium.time.{name}Time" for name in ("Micro", "Nano", "Iso")), Types("time(6)", "time")
    ),
    "io.debezium.time.ZonedTimestamp": Types("timestamp(6)", "timestamptz"),
    "io.debezium.time.ZonedTime": Types("time(6)", "timetz"),
    "io.debezium.time.Year": Types("year", "integer"),
    **dict.fromkeys(
        (f"io.debezium.time.{name}" for name in ("MicroDuration", "NanoDuration", "Interval")),
        Types(None, "interval"),
    ),
    "io.debezium.data.VariableScaleDecimal": Types("decimal", "numeric"),
    DECIMAL: Types("decimal", "numeric"),
    "io.debezium.data.Json": Types("json", "json"),
    "io.debezium.data.Uuid": Types("uuid", "uuid"),
    "io.debezium.data.geometry.Geometry": Types("geometry", "geometry"),
    "io.debezium.data.geometry.Geography": Types("geometry", "geography"),
    "io.debezium.data.geometry.Point": Types("point", "point"),
}
_BY_TYPE: Mapping[str, Types] = {
    "int8": Types("tinyint", "smallint"),
    "int16": Types("smallint", "smallint"),
    "int32": Types("int", "integer"),
    "int64": Types("bigint", "bigint"),
    "float": Types("float", "real"),
    "double": Types("double", "double precision"),
    "boolean": Types("boolean", "boolean"),
    "string": Types("longtext", "text"),
    "bytes": Types("longblob", "bytea"),
}


def types_of(field: Field) -> Types:
    """The types for a field, from the meaning in its schema, or else from the form of its values."""
    return _BY_MEANING.get(field.name or "") or _BY_TYPE.get(field.type, _NOT_KNOWN)
