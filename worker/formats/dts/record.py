"""A DTS record: its header, which routes it, and its rows as typed values, or its statement.

Every record contains its columns' names and types. They are nearly always the same as in the table's previous
record. Then their bytes are only compared, not decoded again."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from worker.formats.dts.schema import FIELDS, LEADING, TAGS, UNKNOWN_TYPE, column_types, part
from worker.formats.dts.values import ABSENT, Reader, readers
from worker.formats.json_rows import Shapes
from worker.formats.schema_registry.avro.code import Code
from worker.formats.schema_registry.avro.values import read_string, reader_of, varint

Row = dict[str, Any]
Columns = tuple[tuple[str, tuple[Reader, ...]], ...]
"""Each column's name and readers, indexed by the byte with a value's class."""

_read_keys = msgspec.json.Decoder(dict[str, list[str]]).decode


class Shape:
    """The columns of one table while they stay the same. Threads share it without a lock, because two threads
    that learn a type at the same time learn the same type."""

    __slots__ = ("_unknown", "columns", "fields", "key_columns", "key_tag", "names", "source_type", "types")

    def __init__(
        self, read: Sequence[Mapping[str, Any]], fields: bytes, key_tag: str, source_type: str
    ) -> None:
        """`read` and `fields`: the record's `fields`, decoded and as bytes. `key_tag`: its tag `pk_uk_info`.

        Raises ValueError if the tag is not a JSON object of column names."""
        known = column_types(source_type)
        self.fields = fields
        self.key_tag = key_tag
        self.source_type = source_type
        columns: list[tuple[str, tuple[Reader, ...]]] = []
        types: dict[str, str] = {}
        unknown: dict[str, tuple[str | None, str | None]] = {}
        for field in read:
            name, type_ = field["name"], known.get(field["dataTypeNumber"], UNKNOWN_TYPE)
            columns.append((name, readers(type_.kind)))
            if type_.text is not None:
                types[name] = type_.text
            elif type_.of_text is not None:
                unknown[name] = type_.of_text, type_.of_bytes
        self.columns: Columns = tuple(columns)
        self.names = frozenset(name for name, _ in columns)
        self.types: Mapping[str, str] = types
        """Column -> type text, for columns whose type is known so far. The first value other than NULL
        decides whether a column is VARCHAR or VARBINARY."""
        self._unknown: Mapping[str, tuple[str | None, str | None]] = unknown
        key = _read_keys(key_tag).get("PRIMARY") if key_tag else None
        self.key_columns = tuple(key) if key else None

    def learn(self, row: Row) -> None:
        """Learn the types of columns with an ambiguous type number from a row's values."""
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


_KEY_TAG, _GTID_TAG = "pk_uk_info", "GTID"
_NO_TRANSACTION = ("", "0")

_Encoded = tuple[bytes, Any]
"""A value's bytes and the value."""
_DOT = "\\u002E"
"""DTS's escape for a dot inside a name."""


class DTSRecord(NamedTuple):
    """The parts of a record that become changes."""

    header: Header
    transaction: str | None
    shape: Shape | None
    """None for a record without rows."""
    before: Row | str | None
    after: Row | str | None
    """Rows, or a statement for DDL."""


class RecordReader:
    """A reader of records. All threads share one object."""

    def __init__(self) -> None:
        # Threads share both without a lock: each access is one dict operation. Two threads that miss at the
        # same time make the same shape twice.
        self._shapes = Shapes[tuple[str | None, str, bytes, str], Shape]()
        self._recent: dict[str | None, Shape] = {}

    def read(self, value: bytes) -> DTSRecord:
        """Read a record. Raises ValueError if the value is not a record. The message says where."""
        try:
            header = read_header(value)
            tags, at = _read_tags(value, header.end)
            shape, at = self._shape(value, at, header, tags.get(_KEY_TAG, ""))
            before, at, encoded = _image(value, at, shape, "beforeImages")
            after, at, _ = _image(value, at, shape, "afterImages", encoded)
            # The last field, bornTimestamp, is missing in older streams.
            end = varint(value, at)[1] if at < len(value) else at
        except (IndexError, struct.error):
            end = len(value) + 1
        if end > len(value):
            raise ValueError(f"it is cut off after {len(value)} bytes")
        if end < len(value):
            raise ValueError(f"{len(value) - end} bytes too many after its last field")
        transaction = header.transaction
        if transaction in _NO_TRANSACTION:
            transaction = tags.get(_GTID_TAG, "")
        return DTSRecord(header, transaction or None, shape, before, after)

    def _shape(self, value: bytes, at: int, header: Header, key_tag: str) -> tuple[Shape | None, int]:
        recent = self._recent.get(header.object_name)
        if (
            recent is not None
            and value.startswith(recent.fields, at)
            and recent.key_tag == key_tag
            and recent.source_type == header.source_type
        ):
            return recent, at + len(recent.fields)
        columns, end = _read_fields(value, at)
        if not isinstance(columns, list):
            return None, end
        fields = value[at:end]
        key = (header.object_name, header.source_type, fields, key_tag)
        shape = self._shapes.get(key)
        if shape is None:
            shape = Shape(columns, fields, key_tag, header.source_type)
            if self._shapes.add(key, shape, len(shape.columns)):
                self._recent.clear()
        self._recent[header.object_name] = shape
        return shape, end


def _tags_reader() -> Callable[[bytes, int], tuple[dict[str, str], int]]:
    code = Code()
    code.fields(part(TAGS), {"tags": "tags"})
    code.line("return tags, p")
    return code.made()


_read_tags = _tags_reader()
_read_fields = reader_of(FIELDS)


def _read_count(value: bytes, at: int) -> tuple[int, int]:
    """The number of items in an array's next block. 0: there are no more blocks."""
    count, at = varint(value, at)
    if count >= 0:
        return count, at
    return -count, varint(value, at)[1]  # then the block's size in bytes follows


def _image(
    value: bytes, at: int, shape: Shape | None, field: str, before: Sequence[_Encoded] = ()
) -> tuple[Row | str | None, int, list[_Encoded]]:
    """The image, the position after it, and its values with bytes. `before`: the first image's values."""
    branch, at = varint(value, at)
    if branch == 0:
        return None, at, []
    if branch == 1:
        text, at = read_string(value, at)
        return text, at, []
    if branch != 2:
        raise ValueError(f"`{field}` is branch {branch}, but there are three")
    if shape is None:
        raise ValueError(f"`{field}` has values, but `fields` is not an array")
    columns = shape.columns
    values: list[_Encoded] = []
    count, at = _read_count(value, at)
    while count:
        first, end = len(values), len(values) + count
        if end > len(columns):
            raise ValueError(f"`{field}` has {end} values or more for {len(columns)} columns")
        try:
            at = _append_values(value, at, columns[first:end], before[first:end], values)
        except (ValueError, ArithmeticError) as error:
            raise ValueError(f"column {columns[len(values)][0]!r} in `{field}`: {error}") from None
        count, at = _read_count(value, at)
    if len(values) < len(columns):
        raise ValueError(f"`{field}` has {len(values)} values for {len(columns)} columns")
    row = {name: found for (name, _), (_, found) in zip(columns, values, strict=True) if found is not ABSENT}
    shape.learn(row)
    return row, at, values


def _append_values(
    value: bytes, at: int, columns: Columns, before: Sequence[_Encoded], into: list[_Encoded]
) -> int:
    """Read a value for each column. Returns the position after the last one."""
    if not before:
        for _, of_class in columns:
            begin = at
            found, at = of_class[value[at]](value, at + 1)
            into.append((value[begin:at], found))
        return at
    for (_, of_class), known in zip(columns, before, strict=True):
        # Most values of an update do not change, so their bytes are equal.
        if value.startswith(known[0], at):
            at += len(known[0])
            into.append(known)
        else:
            found, at = of_class[value[at]](value, at + 1)
            into.append((b"", found))
    return at


class Header(NamedTuple):
    """The leading fields of a record."""

    source_time: int
    """Seconds since 1970."""
    transaction: str
    source_type: str
    operation: str
    object_name: str | None
    end: int
    """The position of the next field."""


def _routing_key() -> Callable[[bytes], Any]:
    code = Code("b, p=0")
    code.fields(part(LEADING[:-2]), {})
    code.line("begin = p")
    code.fields(part(LEADING[-2:]), {})
    code.line("return b[begin:p]")
    return code.made()


def _read_header() -> Callable[[bytes], Any]:
    code = Code("b, p=0")
    read = ("sourceTimestamp", "sourceTxid", "sourceType", "operation", "objectName")
    code.fields(part(LEADING), dict(zip(read, read, strict=True)))
    code.line("if p > len(b): raise IndexError")
    code.line(f"return {code.bind(Header)}({', '.join(read)}, p)")
    return code.made()


routing_key: Callable[[bytes], bytes] = _routing_key()
"""The bytes of `operation` and `objectName`, which decide a record's route.

Raises one of READ_ERRORS. Unlike `read_header`, it does not find all errors."""
read_header: Callable[[bytes], Header] = _read_header()
"""Read and check the leading fields. Raises one of READ_ERRORS."""


def names_of(object_name: str) -> tuple[str, str]:
    """(database, table) of an `objectName` `db.table`. For `db.schema.table` they are schema and table, and
    for `db` the database and an empty table.

    Raises ValueError for other forms."""
    names = [name.replace(_DOT, ".") for name in object_name.split(".")]
    if len(names) > 3 or not all(names):
        raise ValueError(f"`objectName` is {object_name!r}: neither db, db.table nor db.schema.table")
    return (names[0], "") if len(names) == 1 else (names[-2], names[-1])
