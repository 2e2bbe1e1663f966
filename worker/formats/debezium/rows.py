"""Debezium's envelopes, and the rows in them as typed values.

Each shape (the schema of a record, or the definition of its table) has one `RowShape`, with a reader for each
column. A frequent shape gets its own decoder, which reads a whole message in one pass. If that decoder
refuses a message, the message is read column by column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar, cast

import msgspec

from handlers.mysql.values import Converter
from handlers.values.native_types import NativeTypes, SchemaTypes
from worker.formats.debezium.column_types import fields_of, readers_of
from worker.formats.debezium.connect.schema import Head
from worker.formats.debezium.connect.values import AS_IT_IS
from worker.formats.debezium.postgres_rows import PostgresRows
from worker.formats.debezium.postgres_types import is_unavailable, lacks_values
from worker.formats.debezium.settings import DebeziumSettings
from worker.formats.debezium.source import MYSQL, POSTGRESQL, REFUSALS, Payload, Row, Source
from worker.formats.images import NOTHING, lacking
from worker.formats.interface import Milliseconds, wrong_value
from worker.formats.json_rows import Practice, RowStruct, number
from worker.formats.table_history import TableDefinition

RowType = TypeVar("RowType")

Rows = tuple[Row | None, Row | None]
"""(before, after)"""
ENDLESS = 1 << 63
"""Larger than all positions."""


class Transaction(msgspec.Struct, gc=False):
    """Present with `provide.transaction.metadata`."""

    id: str | None = None


class Message(msgspec.Struct, Generic[RowType], gc=False):
    op: str
    source: Source
    before: RowType | None = None
    after: RowType | None = None
    transaction: Transaction | None = None
    ts_ms: Milliseconds | None = None


_read_plain: Callable[[Payload], Message[Row]] = msgspec.json.Decoder(Message[Row], float_hook=number).decode


class Sure(NamedTuple):
    """The binlog range in which the shape's definition applies without a lookup."""

    version: int
    """Version of the history when this was looked up."""
    file: str | None
    """The binlog file."""
    since: int
    until: int
    """Positions in that file: first, and first after the range."""


class RowsDecoder:
    """Reads messages whose rows have exactly these columns, in one pass. Immutable."""

    __slots__ = ("_read", "_read_both", "decode")

    def __init__(self, columns: Mapping[str, Converter]) -> None:
        struct = RowStruct(columns)
        self._read, self._read_both = struct.reader(), struct.pair_reader()
        self.decode: Callable[[Payload], Message[Any]] = msgspec.json.Decoder(
            cast(Any, Message)[struct.type], float_hook=number
        ).decode

    def rows(self, message: Message[Any]) -> Rows:
        """(before, after) of a message that `decode` read. Raises one of REFUSALS."""
        before, after = message.before, message.after
        if before is not None and after is not None:
            return self._read_both(before, after)
        return None if before is None else self._read(before), None if after is None else self._read(after)


class RowShape:
    """The readers of a table's rows between two changes of its schema. Threads share it."""

    __slots__ = (
        "columns",
        "database",
        "definition",
        "head",
        "may_lack_values",
        "postgresql",
        "practice",
        "readers",
        "schema",
        "stream",
        "sure",
        "table",
        "types",
    )

    def __init__(
        self,
        head: Head | None,
        source: Source,
        definition: TableDefinition | None,
        settings: DebeziumSettings,
        *,
        is_flat: bool = False,
    ) -> None:
        """Raises UndecodableRecord if the head's schema is invalid."""
        self.head = head
        self.stream, self.database = source.name, source.db
        self.schema, self.table = source.schema, source.table
        self.definition = definition
        self.sure: Sure | None = None
        fields = fields_of(head, hidden=settings.fields_prefix if is_flat else None)
        table = f"{source.schema or source.db}.{source.table}"
        is_mysql, configured = source.connector in MYSQL, settings.types_of(table)
        self.columns = frozenset(fields or ())
        """All columns that the connector sends. Empty if unknown. Definitions may have other columns too."""
        lost = settings.nulls_beyond_calendar(table)
        self.types, self.readers = readers_of(
            fields, definition, configured, settings, is_mysql=is_mysql, lost=lost
        )
        self.may_lack_values = source.connector == POSTGRESQL
        if self.may_lack_values and fields and self.types and fields.keys() <= self.types.keys():
            self.types = SchemaTypes({name: text for name, text in self.types.items() if name in fields})
        elif self.types and not is_mysql:
            self.types = NativeTypes(self.types)
        self.postgresql = None
        if self.may_lack_values:
            self.postgresql = PostgresRows(table, fields, self.readers, settings)
        self.practice = Practice(self._decoder)

    def is_of(self, source: Source) -> bool:
        """Whether a record with this source belongs to the shape's table."""
        return (
            source.table == self.table
            and source.db == self.database
            and source.schema == self.schema
            and source.name == self.stream
        )

    def payload(self, value: bytes) -> Payload | None:
        """A value's payload, or None if the value does not have the shape's head."""
        head = self.head
        return value if head is None else head.payload(value)

    def read(self, payload: Payload) -> tuple[Message[Any], Rows, frozenset[str]]:
        """Read a message of this shape and its rows, in one pass or column by column. The third item has the
        columns with a placeholder in `after` (or in `before`, if there is no `after`).

        Raises one of DECODE_ERRORS if the payload is not a message, UndecodableRecord if a value does not fit
        its column's type."""
        if self.may_lack_values and lacks_values(payload):
            return self._read_columns(payload)
        decoder = self.practice.decoder
        if decoder is not None:
            try:
                message = decoder.decode(payload)
                return message, decoder.rows(message), NOTHING
            except REFUSALS:
                self.practice.refused()
        found = self._read_columns(payload)
        if sample := found[0].after or found[0].before:
            self.practice.met(tuple(sample))
        return found

    def typed(self, row: Row) -> Row:
        """Convert a row of plain JSON values to typed values. Raises UndecodableRecord."""
        readers = self.readers.get
        typed: Row = {}
        for column, value in row.items():
            if self.may_lack_values and is_unavailable(value):
                continue
            reader = readers(column)
            if value is None or reader is None:
                typed[column] = value
                continue
            try:
                typed[column] = reader.read(value)
            except REFUSALS as error:
                raise wrong_value(column, (self.types or {}).get(column), repr(value), error) from None
        return typed

    def _read_columns(self, payload: Payload) -> tuple[Message[Any], Rows, frozenset[str]]:
        message = _read_plain(payload)
        before = None if message.before is None else self.typed(message.before)
        after = None if message.after is None else self.typed(message.after)
        sent, row = (message.before, before) if after is None else (message.after, after)
        return message, (before, after), lacking((sent or {}).keys(), row or {})

    def _decoder(self, names: tuple[str, ...]) -> RowsDecoder:
        readers = [(name, self.readers.get(name, AS_IT_IS)) for name in names]
        return RowsDecoder({name: Converter(one.json_type, one.read, one.finish) for name, one in readers})
