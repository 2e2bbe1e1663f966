"""Rows of JSON records and their keys: an object's members become columns of the configured types.

Converts JSON values to values of a configured column type, and times to milliseconds since 1970."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

import msgspec

from handlers.mysql.types import BYTES, INTEGERS, SHAPES, TEXTS, MySQLType, read_type
from handlers.mysql.values import Converter, converter_of
from handlers.values.bounds import bounded
from worker.formats.interface import Record, UndecodableRecord, has_calendar, wrong_value
from worker.formats.json_rows import READ_ERRORS, compact, read_json
from worker.formats.maxwell.wkt import geometry_bytes
from worker.formats.own_json.paths import ABSENT, InKey, InValue, found_in, key_of, member, read_source

Convert = Callable[[Any], Any]
"""Converts a value other than None, from a JSON decoder with `json_values.number`, to the column's value.
Raises ValueError or ArithmeticError if it does not fit the type."""

_TEXTS = frozenset((*TEXTS, "uuid"))
_INTEGERS = (*INTEGERS, "integer", "bit", "year")
_OTHERS = ("decimal", "numeric", "float", "double", "date", "datetime", "timestamp", "time", "enum", "set")
_ZONED = re.compile(r":\d\d(?:\.\d{1,6}0*)?(?:Z|[+-]\d\d(?::?\d\d)?)\Z", re.ASCII)
_read_timestamp = cast(Converter, converter_of("timestamp")).read
TYPE_NAMES = ("boolean", "json", *_INTEGERS, *_OTHERS, *sorted((*_TEXTS, *BYTES, *SHAPES)))
"""The allowed column types, without size and attributes."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NANOSECONDS: Mapping[str, int] = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_MILLISECOND = 1_000_000
_LIMIT = 10**23  # nanoseconds: far beyond the year 9999


def converter(type_text: str) -> Convert | None:
    """The conversion for a column type. None: objects and arrays become text, other values stay."""
    mysql_type = read_type(type_text)
    name = mysql_type.name
    if name == "json":
        return None
    special = _SPECIAL.get(name)
    if special is not None:
        return special(mysql_type)
    known = None if name in _TEXTS else converter_of(type_text)
    if known is None:
        return _text
    read = known.read
    return lambda value: read(_text(value))


def _text(value: object) -> str:
    """The characters of a text, the digits of a number, or 1 and 0 for true and false."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, str | int | Decimal):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    raise ValueError("an object or an array")


def said(value: object) -> str:
    """The value as JSON writes it, but text without quotes."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _own_text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError("no text")


def _boolean(value: Any) -> bool:
    if value in (True, 1, "true", "t", "1"):
        return True
    if value in (False, 0, "false", "f", "0"):
        return False
    raise ValueError("neither true nor false")


def _timestamp(value: object) -> datetime | None:
    text = _own_text(value)
    if _ZONED.search(text):
        return datetime.fromisoformat(text).astimezone(UTC)
    found: datetime | None = _read_timestamp(text)
    return found


def _bytes_of(mysql_type: MySQLType) -> Convert:
    length = mysql_type.padded_to

    def read(value: object) -> bytes:
        try:
            return base64.b64decode(_own_text(value), validate=True).ljust(length, b"\0")
        except binascii.Error:
            raise ValueError("no base64") from None

    return read


def _set_of(mysql_type: MySQLType) -> Convert:
    labels = mysql_type.labels

    def read(value: object) -> tuple[str, ...]:
        chosen = value if isinstance(value, list) else list(filter(None, _own_text(value).split(",")))
        if not all(label in labels for label in chosen):
            raise ValueError(f"not one of its {len(labels)} labels")
        return tuple(label for label in labels if label in chosen)

    return read


_SPECIAL: Mapping[str, Callable[[MySQLType], Convert]] = {
    "boolean": lambda _: _boolean,
    "timestamp": lambda _: _timestamp,
    "set": _set_of,
    **dict.fromkeys(BYTES, _bytes_of),
    **dict.fromkeys(SHAPES, lambda _: lambda value: geometry_bytes(_own_text(value))),
}


def reader_of(unit: str) -> Callable[[Any], int]:
    """Make a reader of times in s, ms, us, ns or iso8601. An ISO 8601 time without a zone is in UTC.

    The reader raises ValueError for other values."""
    if unit == "iso8601":
        return _iso8601
    unit_ns = _NANOSECONDS[unit]

    def read(value: Any) -> int:
        count = _exact(value)
        if count is None or abs(count) > _LIMIT or abs(count) * unit_ns > _LIMIT:
            raise ValueError(f"not a time in {unit}")
        return _checked(int(count * unit_ns // _MILLISECOND))

    return read


def _exact(value: Any) -> Decimal | None:
    """Read a number, which may be written as text. None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        return None
    try:
        count = bounded(Decimal(repr(value) if isinstance(value, float) else value))
    except ArithmeticError:
        return None
    return count if count.is_finite() else None


def _iso8601(value: Any) -> int:
    try:
        time = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError("not an ISO 8601 time") from None
    return _checked((time.replace(tzinfo=time.tzinfo or UTC) - _EPOCH) // timedelta(milliseconds=1))


def _checked(time_ms: int) -> int:
    if not has_calendar(time_ms):
        raise ValueError("outside the years 1 to 9999; is json.time_unit right?")
    return time_ms


Row = dict[str, Any]
RawRow = Callable[[], Mapping[str, msgspec.Raw]]
"""Returns the row's members as raw JSON. Called only if their spelling matters."""
KeyRule = tuple[str, ...] | InValue | InKey | None
"""Column names, or the place of the key's columns. None: no key."""

_NESTED = frozenset((dict, list))

_read_members: Callable[[bytes | msgspec.Raw], dict[str, msgspec.Raw]] = msgspec.json.Decoder(
    dict[str, msgspec.Raw]
).decode


def raw_row(value: bytes, path: Iterable[str]) -> Mapping[str, msgspec.Raw]:
    """The members of the object at the path, which must exist."""
    members = _read_members(value)
    for name in path:
        members = _read_members(members[name])
    return members


class RowRule:
    """The rules for reading a table's rows."""

    def __init__(self, key: KeyRule, columns: Mapping[str, str], exclude: Iterable[str]) -> None:
        self.key = key
        self.types: Mapping[str, str] | None = dict(columns) or None
        self._exclude = frozenset(exclude)
        self._json = frozenset(column for column, text in columns.items() if read_type(text).name == "json")
        converters = ((column, converter(text)) for column, text in columns.items())
        self._converters = tuple((column, convert) for column, convert in converters if convert is not None)

    def row(self, members: Mapping[str, Any], raw: RawRow) -> Row:
        """Convert a decoded JSON object to a row. Raises UndecodableRecord."""
        row = dict(members)
        for name in self._exclude:
            row.pop(name, None)
        for column, convert in self._converters:
            value = row.get(column)
            if value is not None:
                try:
                    row[column] = convert(value)
                except READ_ERRORS as error:
                    raise self._refused(column, value, error) from None
        if self._json or not _NESTED.isdisjoint(map(type, row.values())):
            self._write_out(row, raw)
        return row

    def _write_out(self, row: Row, raw: RawRow) -> None:
        """Replace objects, arrays and JSON columns by their text."""
        members: Mapping[str, msgspec.Raw] | None = None
        for column, value in row.items():
            if value is None or not (column in self._json or type(value) in _NESTED):
                continue
            try:
                if isinstance(value, str):
                    read_json(value)
                    row[column] = compact(value.encode())
                    continue
                members = raw() if members is None else members
                if column not in members:
                    raise ValueError("an object or an array in a key")
                row[column] = compact(bytes(members[column]))
            except READ_ERRORS as error:
                raise self._refused(column, value, error) from None

    def _refused(self, column: str, value: Any, error: Exception) -> UndecodableRecord:
        return wrong_value(column, (self.types or {}).get(column), repr(value), error)


def key_rule(key: str | list[str] | None) -> KeyRule:
    """The rule for a value of `json.key`."""
    if isinstance(key, str):
        source = read_source(key)
        return source if isinstance(source, InValue | InKey) else None
    return tuple(key) if key else None


def key_columns(key: KeyRule, document: Any, record: Record) -> tuple[tuple[str, ...] | None, Row]:
    """The key's columns, and their values if these are outside the row. Raises UndecodableRecord."""
    if key is None or isinstance(key, tuple):
        return key, {}
    found = found_in(key, document, record)
    if found is None or found is ABSENT:
        return None, {}
    if isinstance(found, dict):
        return tuple(found) or None, found
    if isinstance(found, list) and all(isinstance(name, str) for name in found):
        return tuple(found) or None, {}
    raise UndecodableRecord(f"json.key holds {found!r:.60}: neither an object nor a list of column names")


def with_key(columns: tuple[str, ...] | None, members: Row, record: Record) -> Row:
    """The row with the key's columns, which may be only in the record's key. Raises UndecodableRecord."""
    if columns is None or all(map(members.__contains__, columns)):
        return members
    beside = key_of(record)
    whole = {**beside, **members} if isinstance(beside, dict) else members
    for column in columns:
        if column not in whole:
            raise UndecodableRecord(f"key column {column!r} is not in the row")
    return {name: value for name, value in whole.items() if name in members or name in columns}


def key_of_tombstone(key: KeyRule, record: Record, *, is_text: bool) -> Row | None:
    """The key of the row that a record without a value deletes, or None if it is unknown. `is_text`:
    digits without quotes are a text."""
    if key is None or isinstance(key, InValue):
        return None
    found = key_of(record)
    if isinstance(key, InKey):
        found = member(found, key.path)
        return dict(found) if isinstance(found, dict) and found else None
    if isinstance(found, dict):
        return {column: found[column] for column in key} if found.keys() >= set(key) else None
    if len(key) > 1 or found is None or found is ABSENT or isinstance(found, list):
        return None
    # Without quotes: `1.10` is not `1.1`, and digits may be a text.
    if not isinstance(found, str) and (is_text or type(found) is not int):
        found = (record.key() or b"").decode()
    return {key[0]: found}
