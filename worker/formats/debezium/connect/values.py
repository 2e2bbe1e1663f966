"""Convert values of Kafka Connect's JSON to Python values, by the column's schema.

https://debezium.io/documentation/reference/stable/connectors/mysql.html (data type mappings) describes
Debezium's own types, as does the page of the PostgreSQL connector. docs/formats.md has the table."""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import cache
from typing import Any, Literal, NamedTuple, cast

import msgspec

from handlers.mysql.values import Converter, compact_json, converter_of, single
from worker.formats.debezium.connect.schema import DECIMAL, Field, unquoted_list
from worker.formats.debezium.connect.times import (
    EXACT,
    Beyond,
    as_told,
    date_of,
    digits_of,
    in_utc,
    length_of,
    moment_of,
    of_nanos,
    scaled,
    temporal_text,
    unscaled,
    zoned_time,
)


class Reader(NamedTuple):
    """The conversion of one column's JSON values to Python values."""

    json_type: Any
    """The type that msgspec decodes the value to."""
    finish: Callable[[Any], Any] | None = None
    """Converts the decoded value, unless that is None. Raises ValueError."""
    other: Callable[[Any], Any] | None = None
    """Converts a plain JSON value that is not of `json_type`. Raises ValueError or TypeError."""

    def read(self, value: Any) -> Any:
        """Convert a plain JSON value. Raises ValueError, TypeError or ArithmeticError."""
        try:
            value = msgspec.convert(value, self.json_type)
        except msgspec.ValidationError:
            if self.other is None:
                raise
            return self.other(value)
        return value if value is None or self.finish is None else self.finish(value)


class Forms(NamedTuple):
    """The configuration of a table's values."""

    binary: str | None
    decimals: str | None
    beyond: Beyond
    """Handles PostgreSQL's dates and times beyond Python's calendar."""


class _Geometry(msgspec.Struct, gc=False):
    wkb: bytes | None = None
    srid: int | None = None


class _AnyScale(msgspec.Struct, gc=False):
    scale: int
    value: bytes


AS_IT_IS = Reader(Any)
_MILLI, _MICRO = timedelta(milliseconds=1), timedelta(microseconds=1)
_MOST_PLACES = 1000
"""Most digits after the point in PostgreSQL's numeric."""
_LONGEST_BITS = 64
"""Bits that are read as one number. More bits are read as bytes, with the last byte first."""
_LENGTH_DIGITS = 10
_HAS_SRID = 0x20000000


# ---- numbers


def _decimal(field: Field) -> Reader:
    """The reader of a decimal, which may also be a JSON number (`decimal.format=NUMERIC`)."""
    scale = field.parameter("scale") or "0"
    places = int(scale) if scale.removeprefix("-").isdecimal() else 0
    if places <= _MOST_PLACES:
        from_text = cast(Converter, converter_of(f"decimal({_MOST_PLACES},{places})")).read
        return Reader(bytes, scaled(places), lambda value: from_text(digits_of(value)))
    # PostgreSQL's scales have eleven bits, and the connector ignores the sign: 2046 is -2.
    from_bytes, whole = scaled(places), Decimal(1)
    return Reader(bytes, lambda value: from_bytes(value).quantize(whole, context=EXACT))


def _bits(value: bytes) -> int:
    if len(value) > _LONGEST_BITS // 8:
        raise ValueError(f"more than {_LONGEST_BITS} bits")
    return int.from_bytes(value, "little")


# ---- text


def enum_of(labels: Sequence[str]) -> Reader:
    """The reader of an enum. Debezium's stream (not its snapshot) writes a comma in a label as `\\,`."""
    known = frozenset(labels)

    def label(value: str) -> str:
        if "\\" not in value or value in known:
            return value
        plain = value.replace("\\,", ",")
        return plain if plain in known else value

    return Reader(str, label if any("," in label for label in labels) else None)


def set_of(labels: Sequence[str]) -> Reader:
    """The reader of a set: labels joined by commas become a tuple in the type's order."""
    places = {label: place for place, label in enumerate(labels)}

    def chosen(value: str) -> tuple[str, ...]:
        if not value:
            return ()
        parts = value.split(",")
        try:
            return tuple(sorted(parts, key=places.__getitem__)) if len(parts) > 1 else (value,)
        except KeyError:
            return tuple(parts)

    return Reader(str, chosen)


# ---- bytes


def _geometry(value: _Geometry) -> bytes | None:
    """A geometry as MySQL stores it: SRID, then WKB. PostGIS repeats the SRID in the WKB; drop it there."""
    if value.wkb is None:
        return None
    wkb = value.wkb
    order: Literal["little", "big"] = "little" if wkb[:1] == b"\1" else "big"
    kind = int.from_bytes(wkb[1:5], order)
    if kind & _HAS_SRID:
        wkb = wkb[:1] + (kind ^ _HAS_SRID).to_bytes(4, order) + wkb[9:]
    try:
        return (value.srid or 0).to_bytes(4, "little") + wkb
    except OverflowError:
        raise ValueError(f"not a geometry: SRID {value.srid}") from None


def _float_text(value: Any) -> float:
    """Read NaN and the infinities, which Connect writes as text."""
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    raise ValueError("no number")


def _integer_other(value: Any) -> int:
    """Read an integer in another form: true, false, or the number's bytes in base64."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str):
        try:
            return unscaled(binascii.a2b_base64(value, strict_mode=True))
        except binascii.Error:
            pass
    raise ValueError("no integer")


def array_of(item: Reader) -> Reader:
    def from_json(values: list[Any]) -> list[Any]:
        return [None if value is None else item.read(value) for value in values]

    return Reader(list[Any], None if item is AS_IT_IS else from_json)


class Types(NamedTuple):
    mysql: str | None
    """None if MySQL has no type for these values."""
    postgresql: str


_DATE, _TIME, _DATETIME = Types("date", "date"), Types("time(6)", "time"), Types("datetime(6)", "timestamp")
_TIME_3, _DATETIME_3 = Types("time(3)", "time"), Types("datetime(3)", "timestamp")
_INTERVAL, _GEOMETRY = Types(None, "interval"), Types("geometry", "geometry")
_NUMERIC, _BYTES = Types("decimal", "numeric"), Types("longblob", "bytea")


@cache
def _by_meaning(beyond: Beyond) -> Mapping[str, tuple[Types, Reader | None]]:
    """Meaning -> (types, reader). None: the form of the values, or more than the meaning, decides. `beyond`:
    for dates and times that may be beyond Python's calendar."""
    day = Reader(int, date_of(beyond), temporal_text("date"))
    as_datetime, as_time = temporal_text("datetime(6)"), temporal_text("time(6)")
    millis, micros = Reader(int, moment_of(_MILLI, beyond), as_datetime), moment_of(_MICRO, beyond)
    time_millis, length = Reader(int, length_of(_MILLI), as_time), length_of(_MICRO)
    shape = Reader(_Geometry, _geometry)
    of_debezium: dict[str, tuple[Types, Reader | None]] = {
        "time.Date": (_DATE, day),
        "time.IsoDate": (_DATE, Reader(str, temporal_text("date"))),
        "time.Timestamp": (_DATETIME_3, millis),
        "time.MicroTimestamp": (_DATETIME, Reader(int, micros, as_datetime)),
        "time.NanoTimestamp": (_DATETIME, Reader(int, of_nanos(micros))),
        "time.IsoTimestamp": (_DATETIME, Reader(str, as_datetime)),
        "time.ZonedTimestamp": (Types("timestamp(6)", "timestamptz"), Reader(str, in_utc(beyond))),
        "time.Time": (_TIME_3, time_millis),
        "time.MicroTime": (_TIME, Reader(int, length, as_time)),
        "time.NanoTime": (_TIME, Reader(int, of_nanos(length))),
        "time.IsoTime": (_TIME, Reader(str, as_time)),
        "time.ZonedTime": (Types("time(6)", "timetz"), Reader(str, zoned_time)),
        "time.Year": (Types("year", "integer"), None),
        "time.MicroDuration": (_INTERVAL, Reader(int, length)),
        "time.NanoDuration": (_INTERVAL, Reader(int, of_nanos(length))),
        "time.Interval": (_INTERVAL, None),
        "data.VariableScaleDecimal": (
            _NUMERIC,
            Reader(_AnyScale, lambda value: scaled(value.scale)(value.value)),
        ),
        "data.Json": (Types("json", "json"), Reader(str, compact_json)),
        "data.Uuid": (Types("uuid", "uuid"), None),
        "data.Bits": (_BYTES, Reader(bytes, _bits)),
        "data.geometry.Geometry": (_GEOMETRY, shape),
        "data.geometry.Geography": (Types("geometry", "geography"), shape),
        "data.geometry.Point": (Types("point", "point"), shape),
    }
    return {
        **{f"io.debezium.{name}": each for name, each in of_debezium.items()},
        "org.apache.kafka.connect.data.Date": (_DATE, day),
        "org.apache.kafka.connect.data.Time": (_TIME_3, time_millis),
        "org.apache.kafka.connect.data.Timestamp": (_DATETIME_3, millis),
        DECIMAL: (_NUMERIC, None),
    }


_INTEGER = Reader(int, None, _integer_other)
_BY_TYPE: Mapping[str, tuple[Types, Reader]] = {
    "int8": (Types("tinyint", "smallint"), _INTEGER),
    "int16": (Types("smallint", "smallint"), _INTEGER),
    "int32": (Types("int", "integer"), _INTEGER),
    "int64": (Types("bigint", "bigint"), _INTEGER),
    "float": (Types("float", "real"), Reader(float, single, _float_text)),
    "double": (Types("double", "double precision"), Reader(float, None, _float_text)),
    "boolean": (Types("boolean", "boolean"), Reader(bool)),
    "string": (Types("longtext", "text"), Reader(str)),
    "bytes": (_BYTES, Reader(bytes)),
}
_NOT_KNOWN = Types(None, "text"), AS_IT_IS


def types_of(field: Field) -> Types:
    """The types for a field, from the meaning in its schema, or else from the form of its values."""
    return (_by_meaning(as_told).get(field.name or "") or _BY_TYPE.get(field.type, _NOT_KNOWN))[0]


def bits_of(field: Field) -> int:
    """The most bits of an `io.debezium.data.Bits`: 2^31 - 1 if the type has no length."""
    length = field.parameter("length") or ""
    return int(length) if length.isdecimal() and len(length) <= _LENGTH_DIGITS else _LONGEST_BITS


def connect_reader(field: Field, beyond: Beyond = as_told) -> Reader:
    """The reader of a column with this schema. Values that the schema does not describe stay plain JSON."""
    if field.name == "io.debezium.data.Bits" and bits_of(field) > _LONGEST_BITS:
        return Reader(bytes)
    if (found := _by_meaning(beyond).get(field.name or "")) is not None and found[1] is not None:
        return found[1]
    if field.name == DECIMAL and field.type == "bytes":
        return _decimal(field)
    if field.name in ("io.debezium.data.Enum", "io.debezium.data.EnumSet"):
        labels = unquoted_list(field.parameter("allowed") or "")
        return (enum_of if field.name.endswith("Enum") else set_of)(labels)
    if field.type == "array" and field.items is not None:
        return array_of(connect_reader(field.items, beyond))
    return _BY_TYPE.get(field.type, _NOT_KNOWN)[1]
