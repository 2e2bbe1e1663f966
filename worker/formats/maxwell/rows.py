"""The rows of Maxwell's records, decoded straight into typed values.

A record's values are read by the table's definition at its place in the log. Each definition, with the key
columns that the records name, has one `RowShape`, whose reader decodes a whole record in one pass. What that
reader refuses (a zero date, a column more or less) is read column by column; only what is refused there too
is undecodable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar, cast

import msgspec

from worker.formats.interface import wrong_value
from worker.formats.json_values import READ_ERRORS, number
from worker.formats.maxwell.values import UNTYPED, Column, column_of
from worker.formats.row_struct import Practice, Row, RowStruct, StructColumn, spelled
from worker.formats.table_history import TableDefinition
from worker.formats.times import Milliseconds, Seconds

Data = TypeVar("Data")

_NULL = msgspec.Raw(b"null")


class Header(msgspec.Struct, gc=False):
    """What tells how the rest is read."""

    type: str
    ts: Milliseconds
    """Seconds since 1970 of a row, milliseconds of DDL."""
    database: str = ""
    table: str = ""
    position: str | None = None
    schema_id: int | None = None
    key_columns: tuple[str, ...] | None = msgspec.field(name="primary_key_columns", default=None)
    xid: int | None = None
    reason: str | None = None
    """Why Maxwell could not write the row: then only its key is there."""


class Message(Header, Generic[Data], gc=False, kw_only=True):
    """A row; the other fields are never decoded."""

    ts: Seconds
    data: Data
    old: msgspec.Raw = _NULL


_NESTED = frozenset((dict, list))
# Of a column without a type that held no object and no array so far.
_SCALAR = Column(Any, UNTYPED.read)
_read_columns: Any = msgspec.json.Decoder(cast(Any, Message)[dict[str, msgspec.Raw]]).decode
_read_old: Callable[[msgspec.Raw], dict[str, msgspec.Raw] | None] = msgspec.json.Decoder(
    dict[str, msgspec.Raw] | None
).decode


class RowDecoder:
    """Reads records whose rows have these columns and no others, in one pass. Never changed."""

    __slots__ = ("_holds_any", "_read", "decode")

    def __init__(self, columns: Mapping[str, Column]) -> None:
        struct = RowStruct(
            StructColumn(name, column.json_type, column.finish, column.is_finished)
            for name, column in columns.items()
        )
        self._read = struct.reader()
        self._holds_any = any(column is _SCALAR for column in columns.values())
        self.decode: Callable[[bytes], Message[Any]] = msgspec.json.Decoder(
            cast(Any, Message)[struct.type], float_hook=number
        ).decode

    def row(self, data: Any) -> Row:
        """The row of a record that `decode` read. Raises one of READ_ERRORS."""
        row = self._read(data)
        if self._holds_any and not _NESTED.isdisjoint(map(type, row.values())):
            raise ValueError("an object or an array, which is to be read as text")
        return row


class RowShape:
    """How the rows of a table are read between two DDL statements. Threads share it."""

    __slots__ = ("_columns", "_nested", "definition", "key_columns", "practice", "types")

    def __init__(
        self, definition: TableDefinition | None, key: Iterable[str], columns: Iterable[str]
    ) -> None:
        """`key`: the key's columns as the record names them, in any case; `columns`: those of its row."""
        self.definition = definition
        self.types = None if definition is None else definition.types
        self.key_columns = spelled(key, columns) or None
        self._columns: dict[str, Column] = {}
        self._nested: frozenset[str] = frozenset()
        """Columns without a type that held an object or an array."""
        self.practice = Practice(self._decoder)

    def read(self, value: bytes) -> tuple[Message[Any], Row]:
        """A record of this shape and its row, by whichever way reads them. Raises one of READ_ERRORS."""
        decoder = self.practice.decoder
        if decoder is not None:
            try:
                typed = decoder.decode(value)
                return typed, decoder.row(typed.data)
            except READ_ERRORS:
                # Columns come and go where Maxwell leaves out what is null.
                self.practice.refused()
        message: Message[dict[str, msgspec.Raw]] = _read_columns(value)
        row = self._read_row(message.data)
        if self.types is None:
            self._nested |= {name for name, raw in message.data.items() if bytes(raw)[:1] in (b"{", b"[")}
        self.practice.met(tuple((name, name in self._nested) for name in row))
        return message, row

    def read_old(self, old: msgspec.Raw) -> Row | None:
        """What the columns that changed held before; None if the record does not say."""
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

    def _column_of(self, name: str) -> Column:
        type_text = (self.types or {}).get(name)
        return UNTYPED if type_text is None else column_of(type_text)

    def _decoder(self, columns: tuple[tuple[str, bool], ...]) -> RowDecoder:
        """`columns`: (name, whether it holds objects or arrays, though it has no type)."""
        if self.types is None:
            return RowDecoder({name: UNTYPED if is_nested else _SCALAR for name, is_nested in columns})
        return RowDecoder({name: self._column_of(name) for name, _ in columns})
