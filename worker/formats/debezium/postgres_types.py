"""PostgreSQL's column types: their form with Debezium's default settings, their texts, and missing values.

https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-data-types"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from worker.formats.debezium.connect.schema import DECIMAL, Field
from worker.formats.debezium.source import Payload

_MARK = "__debezium_unavailable_value"
_BASE64 = base64.b64encode(_MARK.encode()).decode()
_HEX = _MARK.encode().hex()
_UUID = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
"""The result of java.util.UUID.nameUUIDFromBytes for the text."""
_NUMBERS = list(_MARK.encode())
AVRO_MARK = b"".join(bytes((2 * code & 0x7F | 0x80, code >> 6)) for code in _NUMBERS[:10])
"""The first bytes of the numbers in Avro, in which each number takes two bytes."""
_MARKS = ("debezium_unavailable", _BASE64, _HEX, _UUID, "95,95,100,101,98,101,122,105,117,109")
_MARK_BYTES = tuple(mark.encode() for mark in _MARKS)
_TEXTS = frozenset((_MARK, _BASE64, _HEX, f'{{"{_MARK}":"{_MARK}"}}'))
"""Placeholders of text, json, xml and numbers as text, of bytes, and of hstore as text."""
_VALUES: tuple[Any, ...] = ([_MARK], [_BASE64], [_HEX], [_UUID], _NUMBERS, {_MARK: _MARK})
"""Placeholders of arrays, and of hstore as a map."""


class PostgresType(NamedTuple):
    field: Field
    """The Connect schema that the connector would send."""
    type_text: str | None
    """MySQL's spelling of the type, or None if MySQL has no such type."""
    is_bit: bool = False
    """True for bit(1), which the connector sends as a boolean."""


_ALIASES = {
    "int2": "smallint",
    "smallserial": "smallint",
    "int": "integer",
    "int4": "integer",
    "serial": "integer",
    "int8": "bigint",
    "bigserial": "bigint",
    "decimal": "numeric",
    "float4": "real",
    "float8": "double precision",
    "bool": "boolean",
    "character varying": "varchar",
    "character": "char",
    "bpchar": "char",
    "timestamp without time zone": "timestamp",
    "timestamp with time zone": "timestamptz",
    "time without time zone": "time",
    "time with time zone": "timetz",
    "varbit": "bit varying",
}
_PLAIN: Mapping[str, PostgresType] = {
    "smallint": PostgresType(Field("int16"), "smallint"),
    "integer": PostgresType(Field("int32"), "int"),
    "bigint": PostgresType(Field("int64"), "bigint"),
    "oid": PostgresType(Field("int64"), "bigint"),
    "real": PostgresType(Field("float"), "float"),
    "double precision": PostgresType(Field("double"), "double"),
    "boolean": PostgresType(Field("boolean"), "boolean"),
    "bytea": PostgresType(Field("bytes"), "longblob"),
    "date": PostgresType(Field("int32", name="io.debezium.time.Date"), "date"),
    "timestamptz": PostgresType(Field("string", name="io.debezium.time.ZonedTimestamp"), "timestamp(6)"),
    "timetz": PostgresType(Field("string", name="io.debezium.time.ZonedTime"), "time(6)"),
    "interval": PostgresType(Field("int64", name="io.debezium.time.MicroDuration"), None),
    "json": PostgresType(Field("string", name="io.debezium.data.Json"), "json"),
    "jsonb": PostgresType(Field("string", name="io.debezium.data.Json"), "json"),
    "hstore": PostgresType(Field("string", name="io.debezium.data.Json"), "json"),
    "uuid": PostgresType(Field("string", name="io.debezium.data.Uuid"), "uuid"),
    "point": PostgresType(Field("struct", name="io.debezium.data.geometry.Point"), "point"),
    "geometry": PostgresType(Field("struct", name="io.debezium.data.geometry.Geometry"), "geometry"),
    "geography": PostgresType(Field("struct", name="io.debezium.data.geometry.Geography"), "geometry"),
    **dict.fromkeys(
        (
            *("text", "citext", "name", "xml", "inet", "cidr", "macaddr", "macaddr8", "tsvector", "ltree"),
            *("int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange"),
        ),
        PostgresType(Field("string"), "longtext"),
    ),
}
_TEXT = re.compile(
    r"([a-z_][a-z_0-9 ]*?)\s*(?:\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\))?((?: with(?:out)? time zone)?)"
)
_MILLIS = 3
_LONGEST_BITS = 64


def postgres_type(text: str) -> PostgresType | None:  # noqa: PLR0911 - one return a kind
    """Parse a type: `numeric(12,2)`, `character varying(10)[]`, `timestamptz`. None for other texts."""
    text = " ".join(text.lower().split())
    if text.endswith("[]"):
        item = postgres_type(text.removesuffix("[]"))
        return None if item is None else PostgresType(Field("array", items=_item(item.field)), None)
    if re.match(r"interval\b", text):  # interval day to second(3)
        return _PLAIN["interval"]
    found = spelled(text)
    if found is None:
        return None
    name, first, second = found
    match name:
        case "numeric":
            return _numeric(first, second or 0)
        case "money":
            return PostgresType(Field("bytes", name=DECIMAL, parameters={"scale": "2"}), "decimal(19,2)")
        case "char" | "varchar":
            return PostgresType(Field("string"), f"{name}({first})" if first else "longtext")
        case "bit" | "bit varying":
            return _bits(first or (1 if name == "bit" else 0), is_fixed=name == "bit")
        case "timestamp":
            unit = "Timestamp" if first is not None and first <= _MILLIS else "MicroTimestamp"
            digits = 6 if first is None else first
            return PostgresType(Field("int64", name=f"io.debezium.time.{unit}"), f"datetime({digits})")
        case "time":
            digits = 6 if first is None else first
            unit, width = ("Time", "int32") if digits <= _MILLIS else ("MicroTime", "int64")
            return PostgresType(Field(width, name=f"io.debezium.time.{unit}"), f"time({digits})")
    return _PLAIN.get(name)


def spelled(text: str) -> tuple[str, int | None, int | None] | None:
    """(usual name, size, scale) of a type in lower case. None if the text has another form."""
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    first, second = (None if part is None else int(part) for part in (found[2], found[3]))
    return _ALIASES.get(found[1] + found[4], found[1] + found[4]), first, second


def sized_decimal(precision: int, scale: int) -> str:
    """A decimal's type text that every target supports. PostgreSQL's numeric(3,5) has five digits after the
    point; its numeric(5,-2) has seven before the point.

    >>> sized_decimal(3, 5), sized_decimal(5, -2)
    ('decimal(5,5)', 'decimal(7,0)')
    """
    return f"decimal({precision - scale},0)" if scale < 0 else f"decimal({max(precision, scale)},{scale})"


def _numeric(precision: int | None, scale: int) -> PostgresType:
    if precision is None:
        return PostgresType(Field("struct", name="io.debezium.data.VariableScaleDecimal"), "decimal")
    # The connector sends scales as eleven bits without a sign.
    parameters = {"scale": str(scale % 2048), "connect.decimal.precision": str(precision)}
    return PostgresType(Field("bytes", name=DECIMAL, parameters=parameters), sized_decimal(precision, scale))


def _bits(length: int, *, is_fixed: bool) -> PostgresType:
    if is_fixed and length == 1:
        return PostgresType(Field("boolean"), "bit(1)", is_bit=True)
    is_short = 0 < length <= _LONGEST_BITS
    field = Field("bytes", name="io.debezium.data.Bits", parameters={"length": str(length or 2**31 - 1)})
    return PostgresType(field, f"bit({length})" if is_short else "longblob")


def _item(field: Field) -> Field:
    """The field of an array's item: its times are always in microseconds."""
    if field.name == "io.debezium.time.Time":
        return Field("int64", name="io.debezium.time.MicroTime")
    if field.name == "io.debezium.time.Timestamp":
        return Field("int64", name="io.debezium.time.MicroTimestamp")
    return field


def lacks_values(payload: Payload) -> bool:
    """Whether a row may contain a placeholder."""
    text = bytes(payload)
    return any(mark in text for mark in _MARK_BYTES)


def is_unavailable(value: Any) -> bool:
    """Whether a plain JSON value is a placeholder."""
    return value in _TEXTS if isinstance(value, str) else value in _VALUES
