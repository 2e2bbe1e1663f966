"""Readers of MySQL columns, from their Connect schema, the table's MySQL types, or both.

The schema gives a value's form, and the MySQL type its meaning. A DECIMAL may be bytes, text or a double. A
BIGINT UNSIGNED may be a negative number. Without schemas, the form is that of the connector's default
settings. For decimals and for bytes as text, the configuration or the value decides."""

from __future__ import annotations

import binascii
import re
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, cast

from handlers.mysql.types import BYTES, DECIMALS, INTEGERS, SHAPES, SYNONYMS, MySQLType, read_type
from handlers.mysql.values import Converter, converter_of
from handlers.values.bounds import bounded
from worker.formats.debezium.connect.schema import DECIMAL, Field
from worker.formats.debezium.connect.times import as_none, digits_of, in_utc, scaled, unscaled
from worker.formats.debezium.connect.values import AS_IT_IS, Forms, Reader, connect_reader, enum_of, set_of

_INTEGERS = ("year", *INTEGERS, *(name for name, stands_for in SYNONYMS.items() if stands_for in INTEGERS))
_BLOBS = {"binary": 1, "tinyblob": 255}
"""The longest values, in bytes, of types without a size."""
_TEXT = Field("string")
_ZONED_TIMESTAMP = "io.debezium.time.ZonedTimestamp"
_read_integer = cast(Converter, converter_of("bigint")).read
_ZERO = datetime(1970, 1, 1, tzinfo=UTC)
_HEX = re.compile(r"(?:[0-9a-f]{2})*")
_URL_SAFE = str.maketrans("-_", "+/")
_SPECIAL = {"POSITIVE_INFINITY": Decimal("Infinity"), "NEGATIVE_INFINITY": Decimal("-Infinity")}


def reader_of(  # noqa: PLR0911 - one return a kind of type
    field: Field | None, type_text: str | None, forms: Forms
) -> Reader:
    """The reader of a MySQL column. `field`: its schema, if the record has one. `type_text`: its type, if
    known."""
    if field is not None and field.name == _ZONED_TIMESTAMP:
        return _TIMESTAMP
    if type_text is None:
        return AS_IT_IS if field is None else _boolean(connect_reader(field, as_none))
    mysql_type = read_type(type_text)
    name = mysql_type.name
    if mysql_type.labels:
        return (enum_of if name == "enum" else set_of)(mysql_type.labels)
    if name in DECIMALS:
        return _decimal(field, type_text, mysql_type, forms.decimals)
    if name == "bit" or name in _INTEGERS:
        return _integer(field or _default_field(mysql_type), mysql_type)
    if name in BYTES and (field is None or field.type == "string"):
        size = mysql_type.sizes[0] if mysql_type.sizes else _BLOBS.get(name)
        return Reader(str, bytes_from_text(forms.binary, size, is_padded=name == "binary"))
    if name == "vector":
        return Reader(list[float], lambda values: struct.pack(f"<{len(values)}f", *values))
    if field is not None and field.type == "string" and field.name is None:
        field = None if name == "json" else field
    field = field or _default_field(mysql_type)
    return _TIMESTAMP if field.name == _ZONED_TIMESTAMP else connect_reader(field, as_none)


_GEOMETRY = Field("struct", name="io.debezium.data.geometry.Geometry")
_DEFAULTS = {
    **dict.fromkeys(_INTEGERS, Field("int64")),
    **dict.fromkeys(("double", "real", "float8"), Field("double")),
    "date": Field("int32", name="io.debezium.time.Date"),
    "timestamp": Field("string", name=_ZONED_TIMESTAMP),
    "time": Field("int64", name="io.debezium.time.MicroTime"),
    "json": Field("string", name="io.debezium.data.Json"),
    **dict.fromkeys(("geomcollection", *SHAPES), _GEOMETRY),
}


def _default_field(mysql_type: MySQLType) -> Field:
    """The field of a type with default settings (`time.precision.mode` is adaptive microseconds)."""
    name, sizes = mysql_type.name, mysql_type.sizes
    fraction = sizes[0] if sizes else 0
    if name == "bit":
        return Field("bytes", name="io.debezium.data.Bits") if fraction > 1 else Field("boolean")
    if name in ("float", "float4"):
        return Field("double" if len(sizes) == 1 and fraction > 24 else "float")
    if name == "datetime":
        unit = "MicroTimestamp" if fraction > 3 else "Timestamp"
        return Field("int64", name=f"io.debezium.time.{unit}")
    return _DEFAULTS.get(name, _TEXT)


# ---- integers


def _boolean(reader: Reader) -> Reader:
    """Read booleans as integers. MySQL has no boolean type, but the connector sends BIT(1) as boolean."""
    return Reader(bool, int) if reader.json_type is bool else reader


def _integer(field: Field, mysql_type: MySQLType) -> Reader:
    reader = _boolean(connect_reader(field, as_none))
    if field.type == "string":  # a converter or transform of the connector wrote the digits as text
        reader = Reader(int | str, _whole, _whole)
    if field.name == DECIMAL:  # bigint.unsigned.handling.mode: precise
        return Reader(bytes, unscaled)
    if mysql_type.name in ("bigint", "int8") and mysql_type.unsigned:
        other = reader.other or _whole

        def unsigned(value: int | str) -> int:
            number: int = value if type(value) is int else other(value)
            return number if number >= 0 else number + (1 << 64)

        return Reader(int | str, unsigned, other)
    return reader


def _whole(value: Any) -> int:
    """Read an integer, or the digits of a text. Raises ValueError for other values."""
    if isinstance(value, str):
        number: int = _read_integer(value)
        return number
    if type(value) is int:
        return value
    raise ValueError("no integer")


# ---- timestamps


_in_utc: Callable[[str], datetime | None] = in_utc(as_none)


def _timestamp(text: str) -> datetime | None:
    """Read a TIMESTAMP. MySQL's first one is 1970-01-01 00:00:01; the second before is its zero date."""
    moment = _in_utc(text)
    return None if moment == _ZERO else moment


_TIMESTAMP = Reader(str, _timestamp)


# ---- decimals


def _decimal(field: Field | None, type_text: str, mysql_type: MySQLType, decimals: str | None) -> Reader:
    converter = converter_of(type_text)
    assert converter is not None
    from_text: Callable[[str], Decimal] = converter.read
    scale = mysql_type.sizes[1] if len(mysql_type.sizes) > 1 else 0
    if field is None:
        return any_decimal(decimals, mysql_type.sizes[0] if mysql_type.sizes else 10, scale, from_text)
    if field.type == "bytes":
        return connect_reader(field, as_none)._replace(other=lambda value: from_text(digits_of(value)))
    if field.type == "string":
        return Reader(str, from_text)
    return Reader(float, lambda value: from_text(repr(value)))


def bytes_from_text(
    binary: str | None, size: int | None = None, *, is_padded: bool = False
) -> Callable[[str], bytes]:
    """Make a reader for `binary.handling.mode`: bytes, base64 (the same), base64-url-safe or hex. If it is
    None, the value decides. `size`: most bytes of a value; also its least if `is_padded`.
    The reader raises ValueError."""
    if binary == "hex":
        return bytes.fromhex
    if binary is not None:
        return _base64

    def fits(length: int) -> bool:
        return size is None or (length == size if is_padded else length <= size)

    def from_text(value: str) -> bytes:
        if not _HEX.fullmatch(value) or not fits(len(value) // 2):
            return _base64(value)
        # Base64 has four characters for three bytes, and pads the last four.
        if value and len(value) % 4 == 0 and fits(len(value) // 4 * 3):
            raise ValueError(
                "it may be hexadecimal or base64: set debezium.binary to the connector's binary.handling.mode"
            )
        return bytes.fromhex(value)

    return from_text


def _base64(value: str) -> bytes:
    return binascii.a2b_base64(value.translate(_URL_SAFE), strict_mode=True)


def any_decimal(
    decimals: str | None, precision: int, scale: int, from_text: Callable[[str], Decimal]
) -> Reader:
    """The reader of a decimal(precision, scale) for a `decimal.handling.mode`. None: the value decides.

    JSON numbers are valid in every mode (`decimal.format=NUMERIC`). `from_text` reads digits."""
    from_bytes = scaled(scale)

    def from_json(value: Any) -> Decimal:
        if not isinstance(value, str):
            return from_text(digits_of(value))
        if decimals == "precise":
            return from_base64(value)
        # "." and "-" do not occur in base64.
        if decimals == "string" or "." in value or "-" in value:
            return from_text(value)
        if scale or not value.isdecimal() or len(value) > precision:
            return from_base64(value)
        if len(value) % 4 == 0 and from_base64(value).adjusted() < precision:
            raise ValueError(
                "it may be digits or base64: set debezium.decimals to the connector's decimal.handling.mode"
            )
        return from_text(value)

    def from_base64(value: str) -> Decimal:
        return from_bytes(binascii.a2b_base64(value, strict_mode=True))

    return Reader(Any, from_json)


def decimal_from_text(value: str) -> Decimal:
    """Read a decimal of `decimal.handling.mode` string, including PostgreSQL's NaN and infinities. Raises
    ValueError for other texts, and for a number that is too long for any source."""
    try:
        number = _SPECIAL.get(value) or Decimal(value)
    except ArithmeticError:
        raise ValueError("no number") from None
    return bounded(number) if number.is_finite() else number
