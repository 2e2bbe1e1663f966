"""Rows of JSON records: members of an object as columns, by the types that the configuration names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from handlers.mysql.types import read_type
from worker.formats.interface import UndecodableRecord, wrong_value
from worker.formats.json_values import READ_ERRORS, compact, read_json
from worker.formats.own_json.columns import converter
from worker.formats.own_json.paths import InKey, InValue

Row = dict[str, Any]
RawRow = Callable[[], Mapping[str, msgspec.Raw]]
"""The row's members as they are spelled; asked for only where that matters."""
KeyRule = tuple[str, ...] | InValue | InKey | None
"""Column names, or where the key's columns stand; None: no key."""

_NESTED = frozenset((dict, list))

_read_members: Callable[[bytes | msgspec.Raw], dict[str, msgspec.Raw]] = msgspec.json.Decoder(
    dict[str, msgspec.Raw]
).decode


def raw_row(value: bytes, path: Iterable[str]) -> Mapping[str, msgspec.Raw]:
    """The members of the object at the path, which is there."""
    members = _read_members(value)
    for name in path:
        members = _read_members(members[name])
    return members


class RowRule:
    """How the rows of a table are read."""

    def __init__(self, key: KeyRule, columns: Mapping[str, str], exclude: Iterable[str]) -> None:
        self.key = key
        self.types: Mapping[str, str] | None = dict(columns) or None
        self._exclude = frozenset(exclude)
        self._json = frozenset(column for column, text in columns.items() if read_type(text).name == "json")
        converters = ((column, converter(text)) for column, text in columns.items())
        self._converters = tuple((column, convert) for column, convert in converters if convert is not None)

    def row(self, members: Mapping[str, Any], raw: RawRow) -> Row:
        """The columns of a row that a JSON decoder read. Raises UndecodableRecord."""
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
        """Objects, arrays and JSON columns as their text."""
        members: Mapping[str, msgspec.Raw] | None = None
        for column, value in row.items():
            if value is None or not (column in self._json or type(value) in _NESTED):
                continue
            try:
                if isinstance(value, str):
                    row[column] = compact(_checked(value))
                    continue
                members = raw() if members is None else members
                if column not in members:
                    raise ValueError("an object or an array in a key")
                row[column] = compact(bytes(members[column]))
            except READ_ERRORS as error:
                raise self._refused(column, value, error) from None

    def _refused(self, column: str, value: Any, error: Exception) -> UndecodableRecord:
        return wrong_value(column, (self.types or {}).get(column), repr(value), error)


def _checked(text: str) -> bytes:
    """JSON in a JSON string. Raises one of READ_ERRORS."""
    raw = text.encode()
    read_json(raw)
    return raw
