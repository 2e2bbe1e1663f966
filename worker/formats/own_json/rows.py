"""Rows of JSON records and their keys: an object's members become columns of the configured types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from handlers.mysql.types import read_type
from worker.formats.interface import Record, UndecodableRecord, wrong_value
from worker.formats.json_values import READ_ERRORS, compact, read_json
from worker.formats.own_json.columns import converter
from worker.formats.own_json.paths import ABSENT, InKey, InValue, found_in, key_of, member, read_source

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
