"""The values of DTS images: a reader for each class of value, chosen by the column's kind."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from functools import lru_cache
from typing import Any

from handlers.decimals import bounded
from handlers.mysql.values import compact_json
from worker.formats.dts.charsets import text_decoder
from worker.formats.dts.dates import (
    Parts,
    any_of_parts,
    date_of_parts,
    datetime_of_parts,
    read_parts,
    read_timestamp,
    read_zoned,
    time_of_parts,
)
from worker.formats.dts.schema import VALUES
from worker.formats.dts.types import Kind
from worker.formats.dts.wire import read_bytes, read_long, skip_long

__all__ = ["ABSENT", "Reader", "readers"]

Reader = Callable[[bytes, int], tuple[Any, int]]
"""The record's bytes and the place of the value -> the value and the place behind it. Raises ValueError or
ArithmeticError for what is no value of the kind, IndexError where the bytes end too soon."""

ABSENT: Any = object()
"""The image of the column was not recorded."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DOUBLE = struct.Struct("<d")
_SINGLE = struct.Struct("<f")
_MOST_DIGITS = 65  # of a DECIMAL of MySQL
_RESCALING = Context(prec=200, traps=[Inexact, InvalidOperation])


# ---- one reader for each class


def _null(value: bytes, at: int) -> tuple[None, int]:
    return None, at


def _integer(value: bytes, at: int) -> tuple[int, int]:
    text, at = read_bytes(value, skip_long(value, at))
    return int(text), at


# Character set, with the byte of its length -> how its text is read. Few, and the same for all threads.
_decoders: dict[bytes, Callable[[bytes], str | bytes]] = {}


def _characters(value: bytes, at: int) -> tuple[str | bytes, int]:
    end = at + 1 + (value[at] >> 1)
    decode = _decoders.get(value[at:end])
    if decode is None:
        charset, end = read_bytes(value, at)
        decode = text_decoder(charset.decode())
        _decoders[value[at:end]] = decode
    data, at = read_bytes(value, end)
    return decode(data), at


@lru_cache(maxsize=256)
def _unit(scale: int) -> Decimal:
    return Decimal(1).scaleb(-scale)


def _decimal(value: bytes, at: int) -> tuple[Decimal, int]:
    text, at = read_bytes(value, at)
    scale, at = read_long(value, skip_long(value, at))
    try:
        number = bounded(Decimal(text.decode()))
    except DecimalException:
        raise ValueError(f"{text.decode(errors='replace')!r} is no number") from None
    if 0 < scale <= _MOST_DIGITS and text[-scale - 1 : -scale] != b".":
        try:
            return number.quantize(_unit(scale), context=_RESCALING), at
        except DecimalException:  # more digits than it says: all of them count
            pass
    return number, at


def _float(value: bytes, at: int) -> tuple[float, int]:
    if at + _DOUBLE.size > len(value):
        raise IndexError
    number: float = _DOUBLE.unpack_from(value, at)[0]
    return number, skip_long(value, skip_long(value, at + _DOUBLE.size))


def _typed_bytes(value: bytes, at: int) -> tuple[bytes, int]:
    _, at = read_bytes(value, at)
    return read_bytes(value, at)


def _typed_text(value: bytes, at: int) -> tuple[str, int]:
    data, at = _typed_bytes(value, at)
    return data.decode(), at


def _empty(value: bytes, at: int) -> tuple[Any, int]:
    place, at = read_long(value, at)
    if place == 0:
        return None, at
    if place == 1:
        return ABSENT, at
    raise ValueError(f"an EmptyObject number {place}, of two")


# ---- what a column's kind makes of a class


def _then(read: Reader, finish: Callable[[Any], Any]) -> Reader:
    def read_and_finish(value: bytes, at: int) -> tuple[Any, int]:
        found, at = read(value, at)
        return finish(found), at

    return read_and_finish


def _single(number: float) -> float:
    """A FLOAT as the server widens it: the stored value itself."""
    try:
        widened: float = _SINGLE.unpack(_SINGLE.pack(number))[0]
    except OverflowError:
        raise ValueError("beyond the range of FLOAT") from None
    return widened


def _bits(data: str | bytes) -> int:
    return int.from_bytes(data) if isinstance(data, bytes) else int(data)


_TRUTHS = {"t": True, "true": True, "1": True, "f": False, "false": False, "0": False}


def _truth(found: str | bytes) -> bool:
    try:
        return _TRUTHS[found.lower()]  # type: ignore[index]  # bytes are not in it, and are told so
    except KeyError:
        raise ValueError(f"{found!r} is neither true nor false") from None


def _json(found: str | bytes) -> str:
    return compact_json(found if isinstance(found, str) else found.decode())


def _labels(found: str | bytes) -> tuple[str, ...]:
    text = found if isinstance(found, str) else found.decode()
    return tuple(text.split(",")) if text else ()


def _geometry(data: bytes) -> bytes:
    """MySQL's form, SRID in four bytes and then WKB (little endian there), also where only WKB comes."""
    has_srid = len(data) >= 9 and data[4] == 1 and 1 <= int.from_bytes(data[5:9], "little") <= 7
    return data if has_srid else bytes(4) + data


def _date_time(finish: Callable[[Parts], Any]) -> Reader:
    def read(value: bytes, at: int) -> tuple[Any, int]:
        parts, at = read_parts(value, at)
        return finish(parts), at

    return read


def _in_utc(parts: Parts) -> datetime | None:
    return datetime_of_parts(parts, UTC)


def _year(parts: Parts) -> int | None:
    return parts[0]


def _without_zone(moment: datetime) -> datetime:
    return moment.replace(tzinfo=None)


def _zero_is_none(moment: datetime) -> datetime | None:
    """MySQL's TIMESTAMP begins one second after 1970, and keeps its zero date as 0."""
    return None if moment == _EPOCH else moment


_BY_CLASS: Mapping[str, Reader] = {
    "Integer": _integer,
    "Character": _characters,
    "Decimal": _decimal,
    "Float": _float,
    "Timestamp": read_timestamp,
    "DateTime": _date_time(any_of_parts),
    "TimestampWithTimeZone": read_zoned,
    "BinaryGeometry": _then(_typed_bytes, _geometry),
    "TextGeometry": _typed_text,
    "BinaryObject": _typed_bytes,
    "TextObject": _typed_text,
    "EmptyObject": _empty,
}


def _texts(finish: Callable[[Any], Any]) -> dict[str, Reader]:
    return {name: _then(_BY_CLASS[name], finish) for name in ("Character", "BinaryObject", "TextObject")}


_BY_KIND: Mapping[Kind, Mapping[str, Reader]] = {
    Kind.PLAIN: {},
    Kind.SINGLE: {"Float": _then(_float, _single)},
    Kind.BIT: _texts(_bits),
    Kind.BOOLEAN: {"Integer": _then(_integer, bool), **_texts(_truth)},
    Kind.DATE: {"DateTime": _date_time(date_of_parts)},
    Kind.DATETIME: {
        "DateTime": _date_time(datetime_of_parts),
        "Timestamp": _then(read_timestamp, _without_zone),
    },
    Kind.TIMESTAMP: {"DateTime": _date_time(_in_utc), "Timestamp": _then(read_timestamp, _zero_is_none)},
    Kind.INSTANT: {"DateTime": _date_time(_in_utc)},
    Kind.TIME: {"DateTime": _date_time(time_of_parts)},
    Kind.YEAR: {"DateTime": _date_time(_year)},
    Kind.JSON: _texts(_json),
    Kind.SET: _texts(_labels),
    Kind.GEOMETRY: {"BinaryObject": _then(_typed_bytes, _geometry)},
}


def _refused(value: bytes, at: int) -> tuple[Any, int]:
    raise ValueError(f"a value of no class (byte {value[at - 1]:#04x})")


def _table(kind: Kind) -> tuple[Reader, ...]:
    by_class = {**_BY_CLASS, **_BY_KIND[kind]}
    table: list[Reader] = [_refused] * 256
    for branch, reader in enumerate((_null, *(by_class[name] for name in VALUES))):
        table[branch * 2] = reader  # zig-zag
    return tuple(table)


_TABLES = {kind: _table(kind) for kind in Kind}


def readers(kind: Kind) -> tuple[Reader, ...]:
    """The readers of a column of this kind, by the byte that says which class a value is of."""
    return _TABLES[kind]
