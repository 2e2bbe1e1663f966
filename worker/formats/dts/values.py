"""The values of DTS images: a reader for each class of value and kind of column, also for dates and times."""

from __future__ import annotations

import re
from codecs import charmap_decode
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from handlers.mysql.values import compact_json, single
from handlers.values.bounds import bounded
from worker.formats.dts.schema import CLASSES, VALUES, Kind
from worker.formats.schema_registry.avro.code import Code
from worker.formats.schema_registry.avro.schema import AvroSchema

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Parts = tuple[int | None, ...]
"""Year, month, day, hour, minute, second, microseconds (called millis). None: the type lacks the part."""


def moment_of(seconds: int, micros: int) -> datetime:
    """The time in UTC for seconds since 1970 and microseconds (which DTS calls millis)."""
    return _EPOCH + timedelta(seconds=seconds, microseconds=micros)


def datetime_of_parts(parts: Parts, zone: tzinfo | None = None) -> datetime | None:
    """Make a datetime; None for a zero date. Raises ValueError for dates such as 2024-02-31."""
    year, month, day, hour, minute, second, micros = parts
    if year is None or month is None or day is None:
        raise ValueError("a date without a year, month or day")
    clock = (hour or 0, minute or 0, second or 0, micros or 0)
    try:
        return datetime(year, month, day, *clock, zone)
    except ValueError:
        datetime(2000, 1, 1, *clock)  # raises if the time of day is wrong
        _check_zero(year, month, day)
        return None


def date_of_parts(parts: Parts) -> date | None:
    """Make a date; None and errors as in `datetime_of_parts`."""
    year, month, day = parts[:3]
    if year is None or month is None or day is None:
        raise ValueError("a date without a year, month or day")
    try:
        return date(year, month, day)
    except ValueError:
        _check_zero(year, month, day)
        return None


def _check_zero(year: int, month: int, day: int) -> None:
    """Raise ValueError unless this is a zero date."""
    if not (0 <= year <= 9999 and 0 <= month <= 12 and 0 <= day <= 31):
        raise ValueError(f"no date: {year}-{month}-{day}")
    if year and month and day:
        date(year, month, day)


def time_of_parts(parts: Parts) -> timedelta:
    """Make a TIME (-838:59:59 to 838:59:59). All parts of a negative TIME are negative."""
    _, _, days, hours, minutes, seconds, micros = (part or 0 for part in parts)
    return timedelta(days, seconds, micros, 0, minutes, hours)


def any_of_parts(parts: Parts) -> date | timedelta | None:
    """Make a date, a datetime or a time, whichever the parts give."""
    if parts[0] is None:
        return time_of_parts(parts)
    return date_of_parts(parts) if parts[3] is None else datetime_of_parts(parts)


def zoned_of_parts(parts: Parts, zone: str) -> datetime | None:
    """Make a time in UTC from parts in the named zone."""
    moment = datetime_of_parts(parts, _zone(zone))
    return None if moment is None else moment.astimezone(UTC)


_OFFSET = re.compile(r"(?:GMT|UTC)?([+-])(\d{1,2})(?::?(\d\d))?", re.ASCII)


@lru_cache(maxsize=1_000)
def _zone(name: str) -> tzinfo:
    found = _OFFSET.fullmatch(name)
    if found is not None:
        offset = timedelta(hours=int(found[2]), minutes=int(found[3] or 0))
        return timezone(-offset if found[1] == "-" else offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"an unknown time zone, {name!r}") from None


Reader = Callable[[bytes, int], tuple[Any, int]]
"""(record's bytes, position of the value) -> (value, position after it). Raises ValueError or ArithmeticError
if the value is not of the kind, IndexError or struct.error if the bytes end too soon."""

ABSENT: Any = object()
"""Marks a column that the source did not record in the image."""

_MOST_DIGITS = 65  # of a DECIMAL of MySQL
_RESCALING = Context(prec=200, traps=[Inexact, InvalidOperation])


# ---- values by class


# https://dev.mysql.com/doc/refman/8.0/en/charset-charsets.html; its ucs2, utf16 and utf32 are big endian.
_CODECS = {
    "ascii": "ascii", "usascii": "ascii",
    "utf8": "utf-8", "utf8mb3": "utf-8", "utf8mb4": "utf-8",
    "ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be",
    "gb2312": "gb2312", "gbk": "gbk", "gb18030": "gb18030", "big5": "big5",
    "sjis": "shift_jis", "cp932": "cp932", "ujis": "euc_jp", "euckr": "cp949", "tis620": "tis_620",
    "latin2": "iso8859_2", "latin5": "iso8859_9", "latin7": "iso8859_13",
    "greek": "iso8859_7", "hebrew": "iso8859_8", "hp8": "hp_roman8",
    "koi8r": "koi8_r", "koi8u": "koi8_u",
    "cp850": "cp850", "cp852": "cp852", "cp866": "cp866",
    "cp1250": "cp1250", "cp1251": "cp1251", "cp1256": "cp1256", "cp1257": "cp1257",
    "macce": "mac_latin2", "macroman": "mac_roman",
}  # fmt: skip


# MySQL's latin1: cp1252 with its five unused bytes as control characters.
_LATIN1 = "".join(
    chr(byte) if byte in {0x81, 0x8D, 0x8F, 0x90, 0x9D} else bytes([byte]).decode("cp1252")
    for byte in range(256)
)


@cache
def _text_decoder(charset: str) -> Callable[[bytes], str | bytes]:
    """The decoder of a character set. `binary` keeps the bytes.

    Raises ValueError for an unknown character set."""
    name = charset.lower().replace("-", "").replace("_", "")
    if name == "binary":
        return bytes
    if name == "latin1":
        return lambda data: charmap_decode(data, "strict", _LATIN1)[0]
    codec = _CODECS.get(name)
    if codec is None:
        raise ValueError(f"text in an unknown character set, {charset!r}")
    return bytes.decode if codec == "utf-8" else lambda data: data.decode(codec)


_unit = lru_cache(maxsize=256)(Decimal(1).scaleb)


def _decimal(text: str, scale: int) -> Decimal:
    try:
        number = bounded(Decimal(text))
    except DecimalException:
        raise ValueError(f"{text!r} is not a number") from None
    if 0 < scale <= _MOST_DIGITS and text[-scale - 1 : -scale] != ".":
        try:
            return number.quantize(_unit(-scale), context=_RESCALING)
        except DecimalException:  # more digits than its scale: keep all of them
            pass
    return number


_EMPTY = {"NULL": None, "NONE": ABSENT}


# ---- values by a column's kind and their class


_TRUTHS = {"t": True, "true": True, "1": True, "f": False, "false": False, "0": False}


def _truth(found: str | bytes) -> bool:
    try:
        return _TRUTHS[found.lower()]  # type: ignore[index]  # bytes raise KeyError
    except KeyError:
        raise ValueError(f"{found!r} is neither true nor false") from None


def _labels(found: str | bytes) -> tuple[str, ...]:
    text = found if isinstance(found, str) else found.decode()
    return tuple(text.split(",")) if text else ()


def _geometry(data: bytes) -> bytes:
    """Convert to MySQL's form (SRID in four bytes, then little-endian WKB), even if the SRID is missing."""
    has_srid = len(data) >= 9 and data[4] == 1 and 1 <= int.from_bytes(data[5:9], "little") <= 7
    return data if has_srid else bytes(4) + data


def _in_utc(parts: Parts) -> datetime | None:
    return datetime_of_parts(parts, UTC)


def _zero_is_none(moment: datetime) -> datetime | None:
    """None for 0 seconds, MySQL's zero date. TIMESTAMP begins at 1970-01-01 00:00:01."""
    return None if moment == _EPOCH else moment


_Finish = Callable[..., Any]
"""Makes a value from the fields in _FIELDS."""

_FIELDS = {
    "Character": ("charset", "value"),
    "Decimal": ("value", "scale"),
    "Timestamp": ("timestamp", "millis"),
    "TimestampWithTimeZone": ("value", "timezone"),
}
"""Class -> the fields of its value. DateTime uses all as one tuple, other classes use `value`."""

_BY_CLASS: Mapping[str, _Finish] = {
    "Integer": int,
    "Character": lambda charset, data: _text_decoder(charset)(data),
    "Decimal": _decimal,
    "Timestamp": moment_of,
    "DateTime": any_of_parts,
    "TimestampWithTimeZone": zoned_of_parts,
    "BinaryGeometry": _geometry,
    "EmptyObject": _EMPTY.__getitem__,
}
"""Class -> conversion. Values of other classes stay unchanged."""


def _texts(finish: _Finish) -> dict[str, _Finish]:
    return {
        "Character": lambda charset, data: finish(_text_decoder(charset)(data)),
        "BinaryObject": finish,
        "TextObject": finish,
    }


_BY_KIND: Mapping[Kind, Mapping[str, _Finish]] = {
    Kind.PLAIN: {},
    Kind.SINGLE: {"Float": single},
    Kind.BIT: _texts(lambda data: int.from_bytes(data) if isinstance(data, bytes) else int(data)),
    Kind.BOOLEAN: {"Integer": lambda text: bool(int(text)), **_texts(_truth)},
    Kind.DATE: {"DateTime": date_of_parts},
    Kind.DATETIME: {
        "DateTime": datetime_of_parts,
        "Timestamp": lambda *parts: moment_of(*parts).replace(tzinfo=None),
    },
    Kind.TIMESTAMP: {"DateTime": _in_utc, "Timestamp": lambda *parts: _zero_is_none(moment_of(*parts))},
    Kind.INSTANT: {"DateTime": _in_utc},
    Kind.TIME: {"DateTime": time_of_parts},
    Kind.YEAR: {"DateTime": itemgetter(0)},
    Kind.JSON: _texts(lambda found: compact_json(found if isinstance(found, str) else found.decode())),
    Kind.SET: _texts(_labels),
    Kind.GEOMETRY: {"BinaryObject": _geometry},
}


def _refused(value: bytes, at: int) -> tuple[Any, int]:
    raise ValueError(f"a value of an unknown class (byte {value[at - 1]:#04x})")


@cache
def _reader(place: int, finish: _Finish | None) -> Reader:
    """Make the reader of the class at this place in the union."""
    schema = CLASSES[place]
    code = Code()
    if place == 0 or schema.kind == "enum":
        code.read(schema, "value")
        values = "value"
    elif VALUES[place - 1] == "DateTime":
        values = _parts(code, schema)
    else:
        names = _FIELDS.get(VALUES[place - 1], ("value",))
        for field in schema.fields:
            if field.type.kind == "record":
                code.line(f"{field.name} = {_parts(code, field.type)}")
            elif field.name in names:
                code.read(field.type, field.name)
            else:
                code.skip(field.type)
        values = ", ".join(names)
    code.line(f"return {values if finish is None else f'{code.bind(finish)}({values})'}, p")
    return code.made()


def _parts(code: Code, schema: AvroSchema) -> str:
    names = {field.name: field.name for field in schema.fields}
    code.fields(schema, names)
    return f"({', '.join(names)})"


@cache
def readers(kind: Kind) -> tuple[Reader, ...]:
    """The readers for a column of this kind, indexed by the byte with a value's class."""
    finishes = {**_BY_CLASS, **_BY_KIND[kind]}
    table: list[Reader] = [_refused] * 256
    for place in range(len(CLASSES)):
        table[place * 2] = _reader(place, finishes.get(VALUES[place - 1]) if place else None)  # zig-zag
    return tuple(table)
