"""A whole DTS record: its rows as typed values, or its statement.

The columns' names and types come with every record, and nearly always they are those of the table's record
before: then they are compared, not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from worker.formats.dts.header import Header, read_header
from worker.formats.dts.shape import Columns, Row, Shape
from worker.formats.dts.values import ABSENT
from worker.formats.dts.wire import read_bytes, read_count, read_long, skip_long
from worker.formats.row_struct import Shapes

__all__ = ["DTSRecord", "RecordReader", "Row", "Shape"]

_KEY_TAG, _GTID_TAG = b"pk_uk_info", b"GTID"
_NO_TRANSACTION = (b"", b"0")


_Encoded = tuple[bytes, Any]
"""A value's bytes, and the value."""


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
        self._shapes = Shapes[tuple[bytes | None, str, bytes, bytes], Shape]()
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
            if self._shapes.add(key, shape, len(shape.columns)):
                self._recent.clear()
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


def _image(
    value: bytes, at: int, shape: Shape | None, field: str, before: Sequence[_Encoded] = ()
) -> tuple[Row | str | None, int, list[_Encoded]]:
    """The image, the place behind it, and its values with their bytes (`before`: of the one before it)."""
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
    columns = shape.columns
    values: list[_Encoded] = []
    count, at = read_count(value, at)
    while count:
        first, end = len(values), len(values) + count
        if end > len(columns):
            raise ValueError(f"`{field}` holds {end} values or more, of {len(columns)} columns")
        try:
            at = _append_values(value, at, columns[first:end], before[first:end], values)
        except (ValueError, ArithmeticError) as error:
            raise ValueError(f"column {columns[len(values)][0]!r} in `{field}`: {error}") from None
        count, at = read_count(value, at)
    if len(values) < len(columns):
        raise ValueError(f"`{field}` holds {len(values)} values of {len(columns)} columns")
    row = {name: found for (name, _), (_, found) in zip(columns, values, strict=True) if found is not ABSENT}
    shape.learn(row)
    return row, at, values


def _append_values(
    value: bytes, at: int, columns: Columns, before: Sequence[_Encoded], into: list[_Encoded]
) -> int:
    """Read a value for each column; the place behind the last one."""
    if not before:
        for _, of_class in columns:
            begin = at
            found, at = of_class[value[at]](value, at + 1)
            into.append((value[begin:at], found))
        return at
    for (_, of_class), known in zip(columns, before, strict=True):
        # Most values of an update stay the same, which their bytes tell.
        if value.startswith(known[0], at):
            at += len(known[0])
            into.append(known)
        else:
            found, at = of_class[value[at]](value, at + 1)
            into.append((b"", found))
    return at
