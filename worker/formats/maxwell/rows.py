"""The rows of Maxwell's records, decoded directly into typed values.

The table's definition at the record's position in the log gives the types. Each definition, with the records'
key columns, has one `RowShape`. Its decoder reads a whole record in one pass. If that decoder refuses a
record (a zero date, a new or missing column), the record is read column by column. It is undecodable only if
that fails too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar, cast

import msgspec

from handlers.mysql.types import BYTES, SHAPES, MySQLType, read_type
from handlers.mysql.values import Converter, converter_of
from worker.formats.interface import Milliseconds, Seconds, wrong_value
from worker.formats.json_rows import (
    READ_ERRORS,
    Practice,
    Row,
    RowStruct,
    compact,
    number,
    plain,
    spelled,
    text_of,
)
from worker.formats.maxwell.wkt import geometry_bytes
from worker.formats.table_history import TableDefinition

Data = TypeVar("Data")

_NULL = msgspec.Raw(b"null")


def column_of(type_text: str) -> Converter:
    """The conversion for a column of this type (`decimal(10,2)`, `set('a','b')`). It reads raw JSON."""
    mysql_type = read_type(type_text)
    name = mysql_type.name
    if name == "json":
        return _JSON
    if name == "set":
        return _set_of(mysql_type.labels)
    if name in ("geomcollection", *SHAPES):
        return _GEOMETRY
    if name in BYTES:
        return _bytes_of(mysql_type)
    # Maxwell writes an enum's label, not its index.
    converter = None if name == "enum" else converter_of(type_text)
    if converter is None:
        return _TEXT
    read_text = converter.read
    return converter._replace(read=_unless_null(lambda raw: read_text(text_of(raw))))


def _unless_null(read: Callable[[msgspec.Raw], Any]) -> Callable[[msgspec.Raw], Any]:
    return lambda raw: None if raw == _NULL else read(raw)


def _decoded(json_type: Any, finish: Callable[[Any], Any] | None = None) -> Converter:
    decode = msgspec.json.Decoder(json_type).decode
    if finish is None:
        return Converter(json_type, _unless_null(decode))
    return Converter(json_type, _unless_null(lambda raw: finish(decode(raw))), finish)


def _json(raw: msgspec.Raw) -> str | None:
    """A JSON document as text. Maxwell writes NULL and JSON's null in the same way: both are None."""
    return None if raw == _NULL else compact(bytes(raw))


def _bytes_of(mysql_type: MySQLType) -> Converter:
    length = mysql_type.padded_to
    if not length:
        return _BASE64
    # BINARY(n) always has n bytes, but Maxwell's stream drops the trailing zeros.
    padded = _decoded(bytes, lambda value: value.ljust(length, b"\0"))
    return padded._replace(is_finished=lambda value: len(value) == length)


def _set_of(labels: Sequence[str]) -> Converter:
    places = {label: place for place, label in enumerate(labels)}

    def in_order(chosen: tuple[str, ...]) -> tuple[str, ...]:
        try:
            return tuple(sorted(chosen, key=places.__getitem__))
        except KeyError:
            raise ValueError(f"not one of its {len(labels)} labels") from None

    column = _decoded(tuple[str, ...], in_order if labels else None)
    return column._replace(is_finished=lambda chosen: len(chosen) < 2 and places.keys() >= set(chosen))


_TEXT = _decoded(str)
_BASE64 = _decoded(bytes)
_GEOMETRY = _decoded(str, geometry_bytes)
_JSON = Converter(msgspec.Raw, _json, _json)
_UNTYPED = Converter(msgspec.Raw, plain, plain)
"""The conversion for a column of unknown type."""


class Header(msgspec.Struct, gc=False):
    """The fields that decide how the others are read."""

    type: str
    ts: Milliseconds
    """Time since 1970: seconds in a row, milliseconds in DDL."""
    database: str = ""
    table: str = ""
    position: str | None = None
    schema_id: int | None = None
    key_columns: tuple[str, ...] | None = msgspec.field(name="primary_key_columns", default=None)
    xid: int | None = None
    reason: str | None = None
    """The reason why Maxwell could not write the row. Then the record has only the row's key."""


class Message(Header, Generic[Data], gc=False, kw_only=True):
    """The fields in use of a row's record. Other fields are never decoded."""

    ts: Seconds
    data: Data
    old: msgspec.Raw = _NULL


_NESTED = frozenset((dict, list))
# For a column without a type that has not contained an object or an array so far.
_SCALAR = Converter(Any, _UNTYPED.read)
_read_columns: Any = msgspec.json.Decoder(cast(Any, Message)[dict[str, msgspec.Raw]]).decode
_read_old: Callable[[msgspec.Raw], dict[str, msgspec.Raw] | None] = msgspec.json.Decoder(
    dict[str, msgspec.Raw] | None
).decode


class RowDecoder:
    """Reads records whose rows have exactly these columns, in one pass. Immutable."""

    __slots__ = ("_holds_any", "_read", "decode")

    def __init__(self, columns: Mapping[str, Converter]) -> None:
        struct = RowStruct(columns)
        self._read = struct.reader()
        self._holds_any = any(column is _SCALAR for column in columns.values())
        self.decode: Callable[[bytes], Message[Any]] = msgspec.json.Decoder(
            cast(Any, Message)[struct.type], float_hook=number
        ).decode

    def row(self, data: Any) -> Row:
        """The row of a record that `decode` read. Raises one of READ_ERRORS."""
        row = self._read(data)
        if self._holds_any and not _NESTED.isdisjoint(map(type, row.values())):
            raise ValueError("an object or an array, but text is expected")
        return row


class RowShape:
    """The decoders for a table's rows between two DDL statements. Threads share it."""

    __slots__ = ("_columns", "_nested", "definition", "key_columns", "practice", "types")

    def __init__(
        self, definition: TableDefinition | None, key: Iterable[str], columns: Iterable[str]
    ) -> None:
        """`key`: the key's columns as the record names them, in any case. `columns`: the row's columns."""
        self.definition = definition
        self.types = None if definition is None else definition.types
        self.key_columns = spelled(key, columns) or None
        self._columns: dict[str, Converter] = {}
        self._nested: frozenset[str] = frozenset()
        """Columns without a type that contained an object or an array."""
        self.practice = Practice(self._decoder)

    def read(self, value: bytes) -> tuple[Message[Any], Row]:
        """Read a record and its row: in one pass, else column by column. Raises one of READ_ERRORS."""
        decoder = self.practice.decoder
        if decoder is not None:
            try:
                typed = decoder.decode(value)
                return typed, decoder.row(typed.data)
            except READ_ERRORS:
                # The set of columns varies if Maxwell leaves out NULLs.
                self.practice.refused()
        message: Message[dict[str, msgspec.Raw]] = _read_columns(value)
        row = self._read_row(message.data)
        if self.types is None:
            self._nested |= {name for name, raw in message.data.items() if bytes(raw)[:1] in (b"{", b"[")}
        self.practice.met(tuple((name, name in self._nested) for name in row))
        return message, row

    def read_old(self, old: msgspec.Raw) -> Row | None:
        """The old values of the columns that changed. None if the record does not have them."""
        columns = _read_old(old)
        return None if columns is None else self._read_row(columns)

    def _read_row(self, columns: dict[str, msgspec.Raw]) -> Row:
        row = {}
        for name, raw in columns.items():
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = self._column_of(name)
            try:
                row[name] = column.read(raw)
            except READ_ERRORS as error:
                held = bytes(raw).decode(errors="replace")
                raise wrong_value(name, (self.types or {}).get(name), held, error) from None
        return row

    def _column_of(self, name: str) -> Converter:
        type_text = (self.types or {}).get(name)
        return _UNTYPED if type_text is None else column_of(type_text)

    def _decoder(self, columns: tuple[tuple[str, bool], ...]) -> RowDecoder:
        """`columns`: (name, whether it has no type and contained objects or arrays)."""
        if self.types is None:
            return RowDecoder({name: _UNTYPED if is_nested else _SCALAR for name, is_nested in columns})
        return RowDecoder({name: self._column_of(name) for name, _ in columns})
