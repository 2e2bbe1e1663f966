"""Debezium's envelopes, and the rows in them as typed values.

Each shape (the schema of a record, or the definition of its table) has one `RowShape`, which knows how every
column is read. Once a shape was met often it gets a decoder of its own that reads a whole message in one
pass; what that refuses is read column by column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar, cast

import msgspec
from msgspec.structs import asdict, astuple

from worker.formats.debezium.connect_schema import Head, columns_of
from worker.formats.debezium.connect_values import AS_IT_IS, Reader
from worker.formats.debezium.source import DECODE_ERRORS, MYSQL, Payload, Row, Source
from worker.formats.debezium.types import type_of_field
from worker.formats.debezium.values import Handling, reader_of
from worker.formats.interface import UndecodableRecord
from worker.formats.table_history import TableDefinition

__all__ = ["ENDLESS", "REFUSALS", "Message", "RowShape", "Sure", "lacks_values"]

RowType = TypeVar("RowType")

REFUSALS = (*DECODE_ERRORS, ValueError, TypeError, ArithmeticError)
"""What reading a value raises that is not of its column's type."""

_UNAVAILABLE = "__debezium_unavailable_value"
# PostgreSQL keeps large values apart, and logs them only when they change. In a column of text the connector
# sends this placeholder, as bytes in base64, in an array of numbers the numbers of its characters.
_UNAVAILABLE_MARKS = (
    b"debezium_unavailable",
    b"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
    b"95,95,100,101,98,101,122,105,117,109",
)
_UNAVAILABLE_VALUES: tuple[Any, ...] = (
    _UNAVAILABLE,
    "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
    [_UNAVAILABLE],
    {_UNAVAILABLE: _UNAVAILABLE},
    list(_UNAVAILABLE.encode()),
)
ENDLESS = 1 << 63
"""Beyond all positions."""

_SHOWN_CHARACTERS = 60
# A decoder of its own costs a shape 1 ms and 10-30 KiB: worth it from so many messages on.
_MESSAGES_BEFORE_DECODER = 64
# After a message that the shape's decoder refused: so many are read column by column before it is tried
# again.
_MESSAGES_AFTER_REFUSAL = 1_000


class Transaction(msgspec.Struct, gc=False):
    """Present with `provide.transaction.metadata`."""

    id: str | None = None


class Message(msgspec.Struct, Generic[RowType], gc=False):
    """An envelope."""

    op: str
    source: Source
    before: RowType | None = None
    after: RowType | None = None
    transaction: Transaction | None = None
    ts_ms: int | None = None


_read_plain: Callable[[Payload], Message[Row]] = msgspec.json.Decoder(Message[Row]).decode


def lacks_values(payload: Payload) -> bool:
    """Whether a row of PostgreSQL may hold the placeholder of a value that the log does not have."""
    text = bytes(payload)
    return any(mark in text for mark in _UNAVAILABLE_MARKS)


class Sure(NamedTuple):
    """Where the shape's definition holds without looking it up."""

    version: int
    """Of the history that knows it."""
    file: str | None
    """Of the binlog."""
    since: int
    until: int
    """Positions in that file."""


class RowShape:
    """How the rows of one table are read, between two changes of the table.

    Threads share it without a lock: what they change are a counter, where a lost count does no harm, and the
    decoder, which two of them may make twice.
    """

    __slots__ = (
        "_as_row",
        "_finishes",
        "_has_decoder",
        "_patience",
        "_readers",
        "database",
        "decode",
        "definition",
        "head",
        "may_lack_values",
        "schema",
        "stream",
        "sure",
        "table",
        "types",
    )

    def __init__(
        self, head: Head | None, source: Source, definition: TableDefinition | None, handling: Handling
    ) -> None:
        """Raises UndecodableRecord when the head's schema is none."""
        self.head = head
        self.stream, self.database, self.schema, self.table = (
            source.name,
            source.db,
            source.schema,
            source.table,
        )
        self.definition = definition
        self.sure: Sure | None = None
        self.types, self._readers = _readers_of(head, source.connector in MYSQL, definition, handling)
        self.may_lack_values = source.connector == "postgresql"
        self.decode: Callable[[Payload], Message[Any]] = _read_plain
        """Reads whole messages; the shape's own decoder once there is one."""
        # Where no column's type is known, plain JSON is all there is to read.
        self._has_decoder = not self._readers
        self._as_row: Callable[[Any], Row] = asdict if self._readers else dict
        self._finishes: tuple[tuple[str, Callable[[Any], Any]], ...] = ()
        self._patience = _MESSAGES_BEFORE_DECODER if self._readers else 0

    @property
    def is_fast(self) -> bool:
        """Whether `decode` is the shape's own decoder, and did not refuse a message lately."""
        return self._has_decoder and self._patience <= 0

    def is_of(self, source: Source) -> bool:
        """Whether a record with this source is of the shape's table."""
        return (
            source.table == self.table
            and source.db == self.database
            and source.schema == self.schema
            and source.name == self.stream
        )

    def payload(self, value: bytes) -> Payload | None:
        """A value's payload; None for a value that begins otherwise than the shape's."""
        head = self.head
        if head is None:
            return value
        if value.startswith(head.bytes) and value.endswith(b"}"):
            return memoryview(value)[head.size : -1]
        return None

    def rows(self, message: Message[Any]) -> tuple[Row | None, Row | None]:
        """(before, after) of a message that `decode` read. Raises one of REFUSALS."""
        before, after = message.before, message.after
        if before is None or after is None:
            return None if before is None else self._row(before), None if after is None else self._row(after)
        old, new = self._as_row(before), self._as_row(after)
        for column, finish in self._finishes:
            was, value = old[column], new[column]
            if value is not None:
                new[column] = finished = finish(value)
                if was == value:  # as in most columns of an update
                    old[column] = finished
                    continue
            if was is not None:
                old[column] = finish(was)
        return old, new

    def _row(self, values: Any) -> Row:
        row = self._as_row(values)
        for column, finish in self._finishes:
            value = row[column]
            if value is not None:
                row[column] = finish(value)
        return row

    def read(self, payload: Payload) -> tuple[Message[Any], Row | None, Row | None]:
        """A message of this shape with its rows (before, after), by whichever way reads them.

        Raises one of DECODE_ERRORS for what is no message, UndecodableRecord for a value that is not of its
        column's type.
        """
        if self.may_lack_values and lacks_values(payload):
            return self._read_columns(payload)
        if self._patience > 0:
            self._patience -= 1
        else:
            try:
                if not self._has_decoder:
                    self._make_decoder(_read_plain(payload))
                message = self.decode(payload)
                before, after = self.rows(message)
            except REFUSALS:
                self._patience = _MESSAGES_AFTER_REFUSAL
            else:
                return message, before, after
        return self._read_columns(payload)

    def typed(self, row: Row) -> Row:
        """A row of plain JSON values, with typed ones. Raises UndecodableRecord."""
        readers = self._readers.get
        typed: Row = {}
        for column, value in row.items():
            if self.may_lack_values and value in _UNAVAILABLE_VALUES:
                continue
            reader = readers(column)
            if value is None or reader is None:
                typed[column] = value
                continue
            try:
                typed[column] = reader.read(value)
            except REFUSALS as error:
                raise UndecodableRecord(self._refusal(column, value, error)) from None
        return typed

    def _read_columns(self, payload: Payload) -> tuple[Message[Any], Row | None, Row | None]:
        message = _read_plain(payload)
        before = None if message.before is None else self.typed(message.before)
        return message, before, None if message.after is None else self.typed(message.after)

    def _refusal(self, column: str, value: Any, error: Exception) -> str:
        text = repr(value)
        shown = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
        type_text = (self.types or {}).get(column)
        return f"column {column!r}, type {type_text or 'not told'}: {shown}: {error}"

    def _make_decoder(self, sample: Message[Row]) -> None:
        """For rows with the sample's columns: each is required and no other allowed: nothing is dropped."""
        columns = tuple(sample.after or sample.before or ())
        if not columns:
            return
        readers = [self._readers.get(column, AS_IT_IS) for column in columns]
        plain = all(column.isidentifier() and not column.startswith("__") for column in columns)
        fields = columns if plain else tuple(f"column{place}" for place in range(len(columns)))
        row_type: Any = msgspec.defstruct(
            "DebeziumRow",
            [(field, reader.json_type | None) for field, reader in zip(fields, readers, strict=True)],
            rename=dict(zip(fields, columns, strict=True)),
            forbid_unknown_fields=True,
            gc=False,
        )
        if plain:
            self._as_row = asdict
        else:
            self._as_row = lambda values: dict(zip(columns, astuple(values), strict=True))
        finishes = [(c, reader.finish) for c, reader in zip(columns, readers, strict=True)]
        self._finishes = tuple((column, finish) for column, finish in finishes if finish is not None)
        self.decode = msgspec.json.Decoder(cast(Any, Message)[row_type]).decode
        # Last, for another thread uses the rest as soon as it sees this.
        self._has_decoder = True


def _readers_of(
    head: Head | None, is_mysql: bool, definition: TableDefinition | None, handling: Handling
) -> tuple[Mapping[str, str] | None, dict[str, Reader]]:
    """(type texts, readers) of all columns that the schema or the definition tells."""
    try:
        fields = {} if head is None else columns_of(head.schema)
    except DECODE_ERRORS as error:
        raise UndecodableRecord(f"no Connect schema: {error}") from None
    types = dict(definition.types) if definition is not None else {}
    known = dict(types)
    for column, field in fields.items():
        told = type_of_field(field, is_mysql=is_mysql)
        if told is not None and column not in known:
            types[column] = told
            if field.parameter("__debezium.source.column.type") is not None:
                known[column] = told
    readers = {
        column: reader_of(fields.get(column), known.get(column), is_mysql=is_mysql, handling=handling)
        for column in (*fields, *(name for name in known if name not in fields))
    }
    return types or None, readers
