"""Values in RowBinary. Each is checked first, because the server truncates and wraps without an error.

https://clickhouse.com/docs/interfaces/formats/RowBinary"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from handlers.values.bounds import bounded, digits
from handlers.values.change_json import json_value

_FIRST_YEAR, _LAST_YEAR = 1900, 2299
"""Range of Date32 and DateTime64 in all versions since 21.9. Years outside are stored as another day."""
_EPOCH, _EPOCH_DAY = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1)
_INTEGER = re.compile(r"(U?)Int(8|16|32|64|128|256)")
_CALL = re.compile(r"(\w+)\((.*)\)", re.DOTALL)


class Unencodable(ValueError):
    """The column's type cannot represent the value exactly."""


End = Callable[[bytes, int], int]


class Codec(NamedTuple):
    """Encoder and parser of a column's type."""

    encode: Callable[[Any], bytes]
    """Encodes a value. Raises Unencodable, TypeError, BeyondBounds, UnicodeEncodeError."""
    end: End
    """Returns the end of the value that starts at a position."""


def inner_type(type_text: str) -> str:
    """Return the type without Nullable and LowCardinality.

    >>> inner_type("LowCardinality(Nullable(String))")
    'String'
    """
    found = _CALL.fullmatch(type_text)
    return inner_type(found[2]) if found and found[1] in ("Nullable", "LowCardinality") else type_text


def header_of(columns: Mapping[str, str]) -> bytes:
    """Return the header of RowBinaryWithNamesAndTypes. With it, the server refuses columns of other types."""
    texts = map(_string, (*columns, *columns.values()))
    return _varint(len(columns)) + b"".join(texts)


@lru_cache(maxsize=10_000)
def codec_of(type_text: str) -> Codec | None:
    """Return a type's codec; None if binlane does not write to this type."""
    inner = _plain(inner_type(type_text))
    if inner is None or "Nullable(" not in type_text:
        return inner

    def encode(value: Any) -> bytes:
        return b"\x01" if value is None else b"\x00" + inner.encode(value)

    return Codec(encode, partial(_nullable_end, inner.end))


def end_of(type_text: str) -> End | None:
    """Return `Codec.end` of a type, also of some without a codec, whose values are only kept."""
    codec, call = codec_of(type_text), _CALL.fullmatch(type_text)
    if codec is not None:
        return codec.end
    name, inside = (call[1], call[2]) if call else (type_text, "")
    if name == "LowCardinality":
        return end_of(inside)
    if name in ("Nullable", "Array"):
        item = end_of(inside)
        return item and partial(_nullable_end if name == "Nullable" else _array_end, item)
    size = int(inside) if name == "FixedString" else _KEPT.get(name)
    return None if size is None else lambda _, at: at + size


def _plain(type_text: str) -> Codec | None:
    integer = _INTEGER.fullmatch(type_text)
    if integer:
        bits, signed = int(integer[2]), not integer[1]
        return _fixed(partial(_integer, size=bits // 8, signed=signed), bits // 8)
    call = _CALL.fullmatch(type_text)
    name, arguments = (call[1], call[2].split(",")) if call else (type_text, [])
    if name == "Decimal":
        precision, scale = map(int, arguments)
        size = next(size for size, most in ((4, 9), (8, 18), (16, 38), (32, 76)) if precision <= most)
        return _fixed(partial(_decimal, precision=precision, scale=scale, size=size), size)
    if name == "DateTime64":
        return _fixed(partial(_moment, precision=int(arguments[0])), 8)
    if name == "DateTime":
        return _fixed(partial(_moment, precision=0, size=4), 4)
    found = _BY_NAME.get(type_text)
    return Codec(_string, _string_end) if type_text == "String" else found and _fixed(*found)


def _fixed(encode: Callable[[Any], bytes], size: int) -> Codec:
    def checked(value: Any) -> bytes:
        if value is None:
            raise Unencodable("NULL, but the column is not Nullable")
        encoded: bytes = encode(value)
        return encoded

    return Codec(checked, lambda _, at: at + size)


def _integer(value: Any, *, size: int, signed: bool) -> bytes:
    if isinstance(value, Decimal) and bounded(value).is_finite() and value == int(value):
        value = int(value)
    if not isinstance(value, int):
        raise Unencodable(f"not a whole number: {value!r:.60}")
    try:
        return int(value).to_bytes(size, "little", signed=signed)
    except OverflowError:
        raise Unencodable(f"{value} is beyond its range") from None


def _decimal(value: Any, *, precision: int, scale: int, size: int) -> bytes:
    if isinstance(value, bool) or not isinstance(value, Decimal | int):
        raise Unencodable(f"not a decimal number: {value!r:.60}")
    number = bounded(Decimal(value))
    if not number.is_finite():
        raise Unencodable(f"{number} is not a number")
    sign, digits_, exponent = number.as_tuple()
    assert isinstance(exponent, int)  # it is finite
    whole: int = int("".join(map(str, digits_)) or "0")
    rest = 0
    if exponent + scale >= 0:
        whole *= 10 ** (exponent + scale)
    else:
        whole, rest = divmod(whole, 10 ** -(exponent + scale))
    if rest or whole >= 10**precision:
        raise Unencodable(f"{value:f} has more digits than the column holds")
    units: int = -whole if sign else whole
    return units.to_bytes(size, "little", signed=True)


def _in_years(value: date) -> None:
    if not _FIRST_YEAR <= value.year <= _LAST_YEAR:
        raise Unencodable(f"{value.isoformat()} is outside the years {_FIRST_YEAR} to {_LAST_YEAR}")


def _moment(value: Any, *, precision: int, size: int = 8) -> bytes:
    """A time without a zone is UTC."""
    if not isinstance(value, datetime):
        raise Unencodable(f"not a date with a time: {value!r:.60}")
    moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    _in_years(moment)
    since = moment - _EPOCH
    micros = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    ticks, rest = micros * 10 ** max(0, precision - 6), 0
    if precision < 6:
        ticks, rest = divmod(ticks, 10 ** (6 - precision))
    if rest:
        raise Unencodable(f"{value.isoformat()} has more digits after the second than the column holds")
    return _integer(ticks, size=size, signed=size == 8)


def _day(value: Any, *, size: int) -> bytes:
    if isinstance(value, datetime) or not isinstance(value, date):
        raise Unencodable(f"no date: {value!r:.60}")
    _in_years(value)
    return _integer((value - _EPOCH_DAY).days, size=size, signed=size == 4)


def _float(value: Any) -> bytes:
    if isinstance(value, bool) or not isinstance(value, float | int):
        raise Unencodable(f"not a floating-point number: {value!r:.60}")
    try:
        if isinstance(value, int) and float(value) != value:
            raise Unencodable(f"{value} has more digits than the column holds")
    except OverflowError:
        raise Unencodable(f"{value} is beyond its range") from None
    return struct.pack("<d", value)


def _boolean(value: Any) -> bytes:
    if value not in (0, 1) or not isinstance(value, int):
        raise Unencodable(f"neither true nor false: {value!r:.60}")
    return b"\x01" if value else b"\x00"


def _uuid(value: Any) -> bytes:
    try:
        number = (value if isinstance(value, UUID) else UUID(value)).int
    except (ValueError, AttributeError, TypeError):
        raise Unencodable(f"no UUID: {value!r:.60}") from None
    return struct.pack("<QQ", number >> 64, number & (1 << 64) - 1)


def _string(value: Any) -> bytes:
    if value is None:
        raise Unencodable("NULL, but the column is not Nullable")
    data = value if isinstance(value, bytes | bytearray | memoryview) else _text(value).encode("utf-8")
    return _varint(len(data)) + bytes(data)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal):
        return digits(value)
    if isinstance(value, tuple) and all(isinstance(item, str) for item in value):
        return ",".join(value)  # a set, whose labels contain no comma
    plain = json_value(value)
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that starts at a position, and its end."""
    number = shift = 0
    while True:
        one = data[at]
        number |= (one & 127) << shift
        at, shift = at + 1, shift + 7
        if one < 128:
            return number, at


def _string_end(data: bytes, at: int) -> int:
    return sum(read_varint(data, at))


def _nullable_end(inner: End, data: bytes, at: int) -> int:
    return at + 1 if data[at] else inner(data, at + 1)


def _array_end(item: End, data: bytes, at: int) -> int:
    count, at = read_varint(data, at)
    for _ in range(count):
        at = item(data, at)
    return at


_KEPT = {"Float32": 4, "Enum8": 1, "Enum16": 2, "IPv4": 4, "IPv6": 16}
_BY_NAME: Mapping[str, tuple[Callable[[Any], bytes], int]] = {
    "Bool": (_boolean, 1),
    "Float64": (_float, 8),
    "UUID": (_uuid, 16),
    "Date": (partial(_day, size=2), 2),
    "Date32": (partial(_day, size=4), 4),
}
