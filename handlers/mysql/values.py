"""Conversion of MySQL column values from the text of a change stream to Python values.

`converter_of` parses a column's type text once, and returns the converter of all its values.
docs/formats.md has the whole table. If the type text is incomplete (`enum` without its labels) or unknown,
the value stays text: it is never guessed and never lost."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from math import isfinite
from typing import Annotated, Any, NamedTuple

import msgspec

from handlers.mysql.types import MySQLType, read_type
from handlers.values.bounds import bounded


class Converter(NamedTuple):
    """Converts the values of one column in a stream: texts, or what a format's own converters read."""

    json_type: Any
    """The type that a JSON decoder may read the text as. It may refuse texts that `read` accepts."""
    read: Callable[[Any], Any]
    """Converts a text completely. Raises ValueError if it is not a value of the type."""
    finish: Callable[[Any], Any] | None = None
    """Completes the decoder's value; None: it is already complete. Raises ValueError."""
    is_finished: Callable[[Any], bool] | None = None
    """Whether the decoder's value needs no `finish`; None: it always does."""


# ---- numbers

# Python's own parsers accept more: `1_000`, digits of other scripts, surrounding white space, `Infinity`.
_NUMBER = re.compile(r"[-+]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?", re.ASCII).fullmatch
_MOST_DIGITS = 20  # no integer type has more
_PLAIN = "-.0123456789"  # for texts of only these characters, Decimal accepts what _NUMBER does
_MOST_PLAIN = 100  # up to this many characters, a number needs no check of its bounds
_MOST_SIZE = 1000  # no source's decimal has more digits
_SINGLE = struct.Struct("<f")
# Wide enough for MySQL's 65 digits. The trap Inexact: a value with more digits than its type keeps them all.
_RESCALING = Context(prec=200, traps=[Inexact, InvalidOperation])


def _integer(text: str) -> int:
    if len(text) <= _MOST_DIGITS and text.isascii() and text.removeprefix("-").isdecimal():
        return int(text)
    value = _decimal(text)
    # The bound prevents a short text from becoming a number of a million digits.
    if value.adjusted() > _MOST_DIGITS or value != value.to_integral_value():
        raise ValueError("no integer")
    return int(value)


def _double(text: str) -> float:
    if _NUMBER(text) is None:
        raise ValueError("no number")
    return _finite(float(text))


def _finite(value: float) -> float:
    if not isfinite(value):
        raise ValueError("beyond the range of DOUBLE")
    return value


def single(value: float) -> float:
    """Widen a FLOAT as the server does, to the exact stored value: 0.1 -> 0.10000000149011612."""
    try:
        widened: float = _SINGLE.unpack(_SINGLE.pack(value))[0]
    except OverflowError:
        raise ValueError("beyond the range of FLOAT") from None
    return widened


def _decimal(text: str) -> Decimal:
    if _NUMBER(text) is None:
        raise ValueError("no number")
    try:
        return bounded(Decimal(text))
    except DecimalException:
        raise ValueError("no number") from None


def _bounded(value: Decimal) -> Decimal:
    if not value.is_finite():
        raise ValueError("no number")
    return bounded(value)


def _decimal_of(scale: int) -> Converter:
    """Return the converter for a scale. It restores trailing zeros that a stream may drop (`9061.0`)."""
    unit = Decimal(1).scaleb(-scale)

    has_scale = unit.same_quantum

    def rescale(value: Decimal) -> Decimal:
        if not value.is_finite():
            raise ValueError("no number")
        try:
            return value.quantize(unit, context=_RESCALING)
        except DecimalException:
            return bounded(value)

    def read(text: str) -> Decimal:
        if len(text) > _MOST_PLAIN or text.strip(_PLAIN):
            value = _decimal(text)
        else:  # nearly all values
            try:
                value = Decimal(text)
            except DecimalException:
                raise ValueError("no number") from None
        return value if has_scale(value) else rescale(value)

    return Converter(Decimal, read, finish=rescale, is_finished=has_scale)


# ---- dates and times

_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d):(\d\d)(?:\.\d{1,6})?)?", re.ASCII)
_TIME = re.compile(r"(-?)(\d{1,3}):(\d\d):(\d\d)(?:\.(\d{1,6}))?", re.ASCII)


def _datetime(text: str) -> datetime | None:
    """Read a time. None for a zero date (0000-00-00, 2024-00-00, the year 0).

    Raises ValueError for other dates outside the calendar (2024-02-31)."""
    found = _DATE.fullmatch(text)
    if found is None:
        raise ValueError("no date")
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups())
    if month > 12 or day > 31 or hour > 23 or minute > 59 or second > 59:
        raise ValueError("no date")
    if not (year and month and day):
        return None
    return datetime.fromisoformat(text)


def _date(text: str) -> date | None:
    if len(text) != len("2024-02-29"):
        raise ValueError("no date")
    value = _datetime(text)
    return None if value is None else value.date()


def _in_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC)


def _timestamp(text: str) -> datetime | None:
    value = _datetime(text)
    return None if value is None else _in_utc(value)


def _time(text: str) -> timedelta:
    """Read a TIME, which ranges from -838:59:59 to 838:59:59."""
    found = _TIME.fullmatch(text)
    if found is None or int(found[3]) > 59 or int(found[4]) > 59:
        raise ValueError("no time")
    sign, hours, minutes, seconds, fraction = found.groups()
    value = timedelta(
        hours=int(hours),
        minutes=int(minutes),
        seconds=int(seconds),
        microseconds=int((fraction or "").ljust(6, "0")),
    )
    return -value if sign else value


# ---- bytes, JSON, enum, set


def _read_as_text(read: Callable[[str], Any]) -> Converter:
    return Converter(str, read, finish=read)


_OTHER_SPACE = re.compile(r"[\t\r\n]")


def compact_json(text: str) -> str:
    """Remove white space from JSON; keys and numbers keep their spelling. Other texts stay unchanged."""
    if " " not in text and not _OTHER_SPACE.search(text):
        return text
    try:
        return msgspec.json.format(text, indent=-1)
    except (msgspec.DecodeError, RecursionError):
        return text


def _bytes(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        raise ValueError("not bytes: a character beyond U+00FF") from None


def _vector(text: str) -> bytes:
    """Read TiDB's vector from its text, `[1,2.5]`, or bytes as for BINARY."""
    try:
        numbers = msgspec.json.decode(text, type=list[float])
    except msgspec.DecodeError:
        return _bytes(text)
    return struct.pack(f"<{len(numbers)}f", *numbers)


def _enum_of(labels: Sequence[str]) -> Converter:
    """Read a 1-based index, or a label that is not a number. Index 0 is MySQL's empty error value."""
    by_index: Mapping[str, str] = {str(index): label for index, label in enumerate(("", *labels))}
    known = frozenset(label for label in labels if not label.isdecimal())

    def read(text: str) -> str:
        label = by_index.get(text)
        if label is not None:
            return label
        if text in known:
            return text
        raise ValueError(f"neither an index nor a label of its {len(labels)}")

    return _read_as_text(read)


def _set_of(labels: Sequence[str]) -> Converter:
    """Read a bit mask (lowest bit first), or labels joined by commas, as a tuple in the type's order."""
    known = frozenset(labels)

    def read(text: str) -> tuple[str, ...]:
        if text.isdecimal():
            mask = int(text)
            if mask >> len(labels):
                raise ValueError(f"a bit beyond its {len(labels)} labels")
            return tuple(label for bit, label in enumerate(labels) if mask >> bit & 1)
        chosen = frozenset(text.split(",")) if text else frozenset()
        if not chosen <= known:
            raise ValueError(f"neither a bit mask nor labels of its {len(labels)}")
        return tuple(label for label in labels if label in chosen)

    return _read_as_text(read)


# ---- by name

_INTEGER = Converter(int, _integer)
_DOUBLE = Converter(float, _double, finish=_finite, is_finished=isfinite)
_FLOAT = Converter(float, lambda text: single(_double(text)), finish=lambda value: single(_finite(value)))
_DECIMAL = Converter(Decimal, _decimal, finish=_bounded)
# Without `tz=False`, a number would be accepted as seconds since 1970.
_WALL_CLOCK = Annotated[datetime, msgspec.Meta(tz=False)]
_BYTES = _read_as_text(_bytes)

_NAMES: Mapping[Converter, str] = {
    _INTEGER: "tinyint smallint mediumint int integer bigint middleint serial int1 int2 int3 int4 int8 "
    "bool boolean bit year",
    _DOUBLE: "double real float8",
    _FLOAT: "float float4",
    _DECIMAL: "decimal numeric dec fixed",
    Converter(date, _date): "date",
    Converter(_WALL_CLOCK, _datetime): "datetime",
    Converter(_WALL_CLOCK, _timestamp, finish=_in_utc): "timestamp",
    _read_as_text(_time): "time",
    _read_as_text(compact_json): "json",
    _read_as_text(_vector): "vector",
    _BYTES: "binary varbinary tinyblob blob mediumblob longblob geometry point linestring polygon "
    "multipoint multilinestring multipolygon geometrycollection geomcollection",
}
_BY_NAME = {name: converter for converter, names in _NAMES.items() for name in names.split()}


def converter_of(type_text: str) -> Converter | None:
    """Return the converter of a type (`decimal(10,2)`, `enum('a','b')`); None if the text is the value."""
    mysql_type = read_type(type_text)
    name, sizes = mysql_type.name, mysql_type.sizes
    converter = _BY_NAME.get(name)
    if converter is None:
        return _labelled(mysql_type)
    if converter is _DECIMAL and sizes and max(sizes) <= _MOST_SIZE:
        return _decimal_of(sizes[1] if len(sizes) > 1 else 0)
    if converter is _FLOAT and len(sizes) == 1 and sizes[0] > 24:
        return _DOUBLE  # FLOAT(25) to FLOAT(53) are doubles
    if mysql_type.padded_to:
        length = mysql_type.padded_to
        return _read_as_text(lambda text: _bytes(text).ljust(length, b"\0"))
    return converter


def _labelled(mysql_type: MySQLType) -> Converter | None:
    if not mysql_type.labels:
        return None
    return (_enum_of if mysql_type.name == "enum" else _set_of)(mysql_type.labels)
