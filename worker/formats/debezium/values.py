"""Columns of Debezium's rows: by their Connect schema, by the table's MySQL types, or by both.

The schema says in which form a value travels, the MySQL type what it means: a DECIMAL may come as bytes, as
text or as a double, a BIGINT UNSIGNED as a negative number. Without schemas the form is that of the
connector's default settings; where a setting shows in the values themselves (decimals and bytes as text), it
is followed.
"""

from __future__ import annotations

import binascii
import re
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, cast

from handlers.mysql.types import MySQLType, read_type
from handlers.mysql.values import Converter, converter_of
from worker.formats.debezium.connect_schema import Field
from worker.formats.debezium.connect_values import (
    AS_IT_IS,
    Reader,
    connect_reader,
    enum_of,
    scaled,
    set_of,
    unscaled,
)

__all__ = ["Handling", "reader_of"]

_INTEGERS = (
    *("tinyint", "smallint", "mediumint", "middleint", "int", "integer", "bigint", "year"),
    *("int1", "int2", "int3", "int4", "int8"),
)
_DECIMALS = ("decimal", "numeric", "dec", "fixed")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_SHAPES = (
    *("geometry", "point", "linestring", "polygon", "geometrycollection", "geomcollection"),
    *("multipoint", "multilinestring", "multipolygon"),
)
_TEXT = Field("string")
_ZONED_TIMESTAMP = "io.debezium.time.ZonedTimestamp"
_read_integer = cast(Converter, converter_of("bigint")).read
_ZERO = datetime(1970, 1, 1, tzinfo=UTC)
_HEX = re.compile(r"(?:[0-9a-f]{2})*")


class Handling:
    """How one connector writes decimals and bytes, as far as its values have shown it.

    Threads share it without a lock: its fields only ever turn from False to True.
    """

    __slots__ = ("base64_bytes", "base64_decimals")

    def __init__(self) -> None:
        self.base64_bytes = False
        self.base64_decimals = False


def reader_of(  # noqa: PLR0911 - one return a kind of type
    field: Field | None, type_text: str | None, *, is_mysql: bool, handling: Handling
) -> Reader:
    """How a column is read. `field`: its schema, if the record has one; `type_text`: its type, if known."""
    if is_mysql and field is not None and field.name == _ZONED_TIMESTAMP:
        return _timestamp(connect_reader(field))
    if type_text is None or not is_mysql:
        return AS_IT_IS if field is None else _boolean(connect_reader(field), is_mysql=is_mysql)
    mysql_type = read_type(type_text)
    name = mysql_type.name
    if mysql_type.labels:
        return (enum_of if name == "enum" else set_of)(mysql_type.labels)
    if name in _DECIMALS:
        return _decimal(field, type_text, mysql_type, handling)
    if name == "bit" or name in _INTEGERS:
        return _integer(field or _default_field(mysql_type), mysql_type)
    if name in _BYTES and (field is None or field.type == "string"):
        size = mysql_type.sizes[0] if mysql_type.sizes and name == "binary" else None
        return Reader(str, _bytes_of(size, handling))
    if name == "vector":
        return Reader(list[float], lambda values: struct.pack(f"<{len(values)}f", *values))
    if field is not None and field.type == "string" and field.name is None:
        field = None if name == "json" else field
    field = field or _default_field(mysql_type)
    return _timestamp(connect_reader(field)) if field.name == _ZONED_TIMESTAMP else connect_reader(field)


def _default_field(mysql_type: MySQLType) -> Field:  # noqa: PLR0911 - one return a type
    """What the connector's default settings make of a type (`time.precision.mode`: adaptive microseconds)."""
    name, sizes = mysql_type.name, mysql_type.sizes
    fraction = sizes[0] if sizes else 0
    if name in _INTEGERS:
        return Field("int64")
    if name == "bit":
        return Field("bytes", name="io.debezium.data.Bits") if fraction > 1 else Field("boolean")
    if name in ("float", "float4"):
        return Field("double" if len(sizes) == 1 and fraction > 24 else "float")
    if name in ("double", "real", "float8"):
        return Field("double")
    if name == "date":
        return Field("int32", name="io.debezium.time.Date")
    if name == "datetime":
        unit = "MicroTimestamp" if fraction > 3 else "Timestamp"
        return Field("int64", name=f"io.debezium.time.{unit}")
    if name == "timestamp":
        return Field("string", name=_ZONED_TIMESTAMP)
    if name == "time":
        return Field("int64", name="io.debezium.time.MicroTime")
    if name == "json":
        return Field("string", name="io.debezium.data.Json")
    if name in _SHAPES:
        return Field("struct", name="io.debezium.data.geometry.Geometry")
    return _TEXT


# ---- integers


def _boolean(reader: Reader, *, is_mysql: bool) -> Reader:
    """MySQL has no boolean type: BIT(1) travels as one."""
    return Reader(bool, int) if is_mysql and reader.json_type is bool else reader


def _integer(field: Field, mysql_type: MySQLType) -> Reader:
    reader = _boolean(connect_reader(field), is_mysql=True)
    if field.type == "string":  # of a converter or a transform of the connector: its digits are meant
        reader = Reader(int | str, _whole, _whole)
    if field.name == "org.apache.kafka.connect.data.Decimal":  # bigint.unsigned.handling.mode: precise
        return Reader(bytes, unscaled)
    if mysql_type.name in ("bigint", "int8") and mysql_type.unsigned:
        other = reader.other or _whole

        def unsigned(value: int | str) -> int:
            number: int = value if type(value) is int else other(value)
            return number if number >= 0 else number + (1 << 64)

        return Reader(int | str, unsigned, other)
    return reader


def _whole(value: Any) -> int:
    """Of digits in a text."""
    if isinstance(value, str):
        number: int = _read_integer(value)
        return number
    if type(value) is int:
        return value
    raise ValueError("no integer")


# ---- timestamps


def _timestamp(reader: Reader) -> Reader:
    """MySQL's TIMESTAMP begins at 1970-01-01 00:00:01; the second before it is its zero date."""

    def none_of_zero(read: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
        def finish(value: Any) -> Any:
            moment = value if read is None else read(value)
            return None if moment == _ZERO else moment

        return finish

    other = None if reader.other is None else none_of_zero(reader.other)
    return Reader(reader.json_type, none_of_zero(reader.finish), other)


# ---- decimals


def _decimal(field: Field | None, type_text: str, mysql_type: MySQLType, handling: Handling) -> Reader:
    converter = converter_of(type_text)
    assert converter is not None
    from_text: Callable[[str], Decimal] = converter.read
    scale = mysql_type.sizes[1] if len(mysql_type.sizes) > 1 else 0
    if field is not None:
        if field.type == "bytes":
            return connect_reader(field)
        if field.type == "string":
            return Reader(str, from_text)
        return Reader(float, lambda value: from_text(repr(value)))
    from_bytes = scaled(scale)

    def any_form(value: str | float) -> Decimal:
        if type(value) is not str:
            return from_text(repr(value))
        if "." in value or "-" in value:  # neither is a character of base64
            return from_text(value)
        if scale == 0 and value.isdecimal() and (len(value) % 4 or not handling.base64_decimals):
            return from_text(value)
        handling.base64_decimals = True
        return from_bytes(binascii.a2b_base64(value, strict_mode=True))

    return Reader(str | int | float, any_form)


# ---- bytes


def _bytes_of(size: int | None, handling: Handling) -> Callable[[str], bytes]:
    """Of `binary.handling.mode` bytes, base64 (both alike), base64-url-safe or hex. `size`: of BINARY(n)."""

    def from_text(value: str) -> bytes:
        if _HEX.fullmatch(value) and (size is None or len(value) == 2 * size):
            # Base64 of four characters may look like hex, but not for long.
            if len(value) % 4 or not handling.base64_bytes:
                return bytes.fromhex(value)
        else:
            handling.base64_bytes = True
        if "-" in value or "_" in value:
            value = value.replace("-", "+").replace("_", "/")
        return binascii.a2b_base64(value, strict_mode=True)

    return from_text
