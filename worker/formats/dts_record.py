"""A whole DTS record: its rows as typed values, or its statement.

The columns' names and types come with every record, and nearly always they are those of the table's record
before: then they are compared, not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from worker.formats.dts_header import Header, read_header
from worker.formats.dts_types import UNKNOWN_TYPE, column_types
from worker.formats.dts_values import ABSENT, Reader, readers
from worker.formats.dts_wire import read_bytes, read_count, read_long, skip_long

__all__ = ["DTSRecord", "RecordReader", "Row", "Shape"]

Row = dict[str, Any]

_MAX_SHAPES = 2_000
_KEY_TAG, _GTID_TAG = b"pk_uk_info", b"GTID"
_NO_TRANSACTION = (b"", b"0")
_read_keys = msgspec.json.Decoder(dict[str, list[str]]).decode


_Encoded = tuple[bytes, Any]
"""A value's bytes, and the value."""


class Shape:
    """The columns of one table, as long as they stay the same. Threads share it without a lock: two that
    learn a type at once learn the same."""

    __slots__ = ("_unknown", "columns", "fields", "key_columns", "key_tag", "source_type", "types")

    def __init__(self, fields: bytes, key_tag: bytes, source_type: str) -> None:
        """`fields` and `key_tag` are the bytes of the record's `fields` and of its tag `pk_uk_info`.

        Raises ValueError for what is no array of fields, or no JSON object of column names.
        """
        known = column_types(source_type)
        self.fields = fields
        self.key_tag = key_tag
        self.source_type = source_type
        columns: list[tuple[str, tuple[Reader, ...]]] = []
        types: dict[str, str] = {}
        unknown: dict[str, tuple[str | None, str | None]] = {}
        for name, number in _read_fields(fields):
            type_ = known.get(number, UNKNOWN_TYPE)
            columns.append((name, readers(type_.kind)))
            if type_.text is not None:
                types[name] = type_.text
            elif type_.of_text is not None:
                unknown[name] = type_.of_text, type_.of_bytes
        self.columns = tuple(columns)
        self.types: Mapping[str, str] = types
        """Column -> type text, of the columns whose type is known by now: whether a VARCHAR is a VARBINARY
        is seen by its first value that is not NULL."""
        self._unknown: Mapping[str, tuple[str | None, str | None]] = unknown
        key = _read_keys(key_tag).get("PRIMARY") if key_tag else None
        self.key_columns = tuple(key) if key else None

    def learn(self, row: Row) -> None:
        """See by a row's values what the columns are whose numbers do not say it."""
        if not self._unknown:
            return
        learned: dict[str, str] = {}
        for column, (of_text, of_bytes) in self._unknown.items():
            found = row.get(column)
            if found is not None:
                type_text = of_text if isinstance(found, str) else of_bytes
                if type_text is not None:
                    learned[column] = type_text
        if learned:
            types = {**self.types, **learned}
            self.types = {column: types[column] for column, _ in self.columns if column in types}
            self._unknown = {name: texts for name, texts in self._unknown.items() if name not in learned}


class DTSRecord(NamedTuple):
    """What changes are made of."""

    header: Header
    transaction: str | None
    shape: Shape | None
    """Of a record with rows."""
    before: Row | str | None
    after: Row | str | None
    """Rows; of DDL, the statement."""


class RecordReader:
    """Reads records. One object serves all threads."""

    def __init__(self) -> None:
        # Threads share both without a lock: each access is one dict operation, and two threads that miss
        # together make the same shape twice.
        self._shapes: dict[tuple[bytes | None, str, bytes, bytes], Shape] = {}
        self._recent: dict[bytes | None, Shape] = {}

    def read(self, value: bytes) -> DTSRecord:
        """Raises ValueError for what is no record; the message says where."""
        key_tag = gtid = b""
        try:
            header = read_header(value)
            at = _skip_times(value, header.end)
            count, at = read_count(value, at)
            while count:
                for _ in range(count):
                    tag, at = read_bytes(value, at)
                    text, at = read_bytes(value, at)
                    if tag == _KEY_TAG:
                        key_tag = text
                    elif tag == _GTID_TAG:
                        gtid = text
                count, at = read_count(value, at)
            shape, at = self._shape(value, at, header, key_tag)
            before, at, encoded = _image(value, at, shape, "beforeImages")
            after, at, _ = _image(value, at, shape, "afterImages", encoded)
            # The last field, bornTimestamp, is missing in older streams.
            end = skip_long(value, at) if at < len(value) else at
        except IndexError:
            end = len(value) + 1
        if end > len(value):
            raise ValueError(f"it ends in the middle, after {len(value)} bytes")
        if end < len(value):
            raise ValueError(f"{len(value) - end} bytes too many behind its last field")
        text = gtid if header.transaction in _NO_TRANSACTION else header.transaction
        return DTSRecord(header, text.decode() or None, shape, before, after)

    def _shape(self, value: bytes, at: int, header: Header, key_tag: bytes) -> tuple[Shape | None, int]:
        recent = self._recent.get(header.object_name)
        if (
            recent is not None
            and value.startswith(recent.fields, at)
            and recent.key_tag == key_tag
            and recent.source_type == header.source_type
        ):
            return recent, at + len(recent.fields)
        branch, begin = read_long(value, at)
        if branch == 0:
            return None, begin
        if branch == 1:
            return None, read_bytes(value, begin)[1]
        if branch != 2:
            raise ValueError(f"`fields` is branch {branch} of three")
        end = _end_of_fields(value, begin)
        fields = value[at:end]
        key = (header.object_name, header.source_type, fields, key_tag)
        shape = self._shapes.get(key)
        if shape is None:
            shape = Shape(fields, key_tag, header.source_type)
            if len(self._shapes) >= _MAX_SHAPES:
                self._shapes.clear()
                self._recent.clear()
            self._shapes[key] = shape
        self._recent[header.object_name] = shape
        return shape, end


def _skip_times(value: bytes, at: int) -> int:
    """Past `processTimestamps`."""
    branch = value[at]
    at += 1
    if branch == 2:
        count, at = read_count(value, at)
        while count:
            for _ in range(count):
                at = skip_long(value, at)
            count, at = read_count(value, at)
    elif branch:
        raise ValueError("`processTimestamps` is neither null nor numbers")
    return at


def _end_of_fields(value: bytes, at: int) -> int:
    count, at = read_count(value, at)
    while count:
        for _ in range(count):
            at = skip_long(value, read_bytes(value, at)[1])
        count, at = read_count(value, at)
    return at


def _read_fields(fields: bytes) -> list[tuple[str, int]]:
    found = []
    _, at = read_long(fields, 0)
    count, at = read_count(fields, at)
    while count:
        for _ in range(count):
            name, at = read_bytes(fields, at)
            number, at = read_long(fields, at)
            found.append((name.decode(), number))
        count, at = read_count(fields, at)
    return found


def _image(
    value: bytes, at: int, shape: Shape | None, field: str, before: list[_Encoded] | None = None
) -> tuple[Row | str | None, int, list[_Encoded]]:
    """The image, the place behind it, and its values with their bytes.

    `before`: those of the image before it. Most values of an update stay the same, which their bytes tell.
    """
    branch, at = read_long(value, at)
    if branch == 0:
        return None, at, []
    if branch == 1:
        text, at = read_bytes(value, at)
        return text.decode(), at, []
    if branch != 2:
        raise ValueError(f"`{field}` is branch {branch} of three")
    if shape is None:
        raise ValueError(f"`{field}` holds values, but `fields` is no array")
    row: Row = {}
    encoded: list[_Encoded] = []
    columns, place = shape.columns, 0
    count, at = read_count(value, at)
    while count:
        if place + count > len(columns):
            raise ValueError(f"`{field}` holds {place + count} values or more, of {len(columns)} columns")
        try:
            for place in range(place, place + count):
                name, of_class = columns[place]
                if before and value.startswith(before[place][0], at):
                    part, found = before[place]
                    at += len(part)
                else:
                    begin = at
                    found, at = of_class[value[at]](value, at + 1)
                    if before is None:
                        encoded.append((value[begin:at], found))
                if found is not ABSENT:
                    row[name] = found
        except (ValueError, ArithmeticError) as error:
            raise ValueError(f"column {name!r} in `{field}`: {error}") from None
        place += 1
        count, at = read_count(value, at)
    if place < len(columns):
        raise ValueError(f"`{field}` holds {place} values of {len(columns)} columns")
    shape.learn(row)
    return row, at, encoded
