"""Debezium's envelopes, and the rows in them as typed values.

Each shape (the schema of a record, or the definition of its table) has one `RowShape`, with a reader for each
column. A frequent shape gets its own decoder, which reads a whole message in one pass. If that decoder
refuses a message, the message is read column by column.

Rows of PostgreSQL may have the connector's fillers: in unknown keys, and NULL for unchanged values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Generic, NamedTuple, TypeVar, cast

import msgspec

from handlers.mysql.values import Converter
from handlers.values.bounds import BeyondCalendar
from handlers.values.native_types import NativeTypes, SchemaTypes
from worker.formats.debezium.column_types import fields_of, readers_of
from worker.formats.debezium.connect.schema import Field, Head
from worker.formats.debezium.connect.times import LOST
from worker.formats.debezium.connect.values import AS_IT_IS, Reader
from worker.formats.debezium.postgres_types import is_unavailable, lacks_values
from worker.formats.debezium.settings import DebeziumSettings
from worker.formats.debezium.source import MYSQL, POSTGRESQL, REFUSALS, Payload, Row, Source
from worker.formats.images import NOTHING, lacking
from worker.formats.interface import Milliseconds, UndecodableRecord, wrong_value
from worker.formats.json_rows import Practice, RowStruct, number
from worker.formats.table_history import TableDefinition

_ZEROS: tuple[Any, ...] = (
    *("AA==", "00000000-0000-0000-0000-000000000000"),
    {"scale": 0, "value": "AA=="},
    date(1970, 1, 1),
    *({"x": 0.0, "y": 0.0, "wkb": "AQEA" + "A" * 24, "srid": None}, bytes(4) + b"\1\1" + bytes(19)),
)
_TEXTS = re.compile(r"0(\.0+)?|\{\}|1970-01-01(T00:00:00.*|Z)|00:00:00Z|P0Y0M0DT0H0M0S")
"""Numbers, hstore, times and intervals that the connector sends as text."""


class PostgresRows:
    """The rules for rows of one table with one schema. Immutable, so threads share it."""

    def __init__(
        self,
        table: str,
        fields: Mapping[str, Field],
        readers: Mapping[str, Reader],
        settings: DebeziumSettings,
    ) -> None:
        """`table`: schema.table. `fields`: the columns in the records' schema."""
        self._has_nulls = settings.nulls_beyond_calendar(table)
        self._kept_if_null = settings.kept_if_null(table)
        self._has_zero_keys = settings.has_zero_keys(table)
        self._defaults = {name: _default(field, readers[name]) for name, field in fields.items()}

    def in_calendar(self, row: Row | None, key: Sequence[str]) -> None:
        """Replace times beyond the calendar by NULL, if the configuration says so.

        In a key, infinity becomes text, because a key has no NULL. Others raise UndecodableRecord."""
        if row is None or not self._has_nulls:
            return
        for name, value in row.items():
            if name not in key:
                row[name] = _none_beyond(value)
            elif _is_beyond(value):
                row[name] = text = str(value)
                if "infinity" not in text:
                    shown = "it" if value is LOST else repr(text)
                    raise UndecodableRecord(
                        f"column {name!r} of the key: {shown} is beyond the years 1 to 9999"
                    )

    def deleted(self, row: Row, key: tuple[str, ...]) -> Row:
        """The row, or only its key if the log contains only the key. Raises UndecodableRecord for an unknown
        key.

        The connector fills the other columns with NULL or, if they are NOT NULL, with their defaults. It also
        fills the key if the table has a primary key and REPLICA IDENTITY USING INDEX."""
        logged = [name for name in row if name not in key and not self.is_filler(name, row[name])]
        if logged and self.is_zero(row, key):
            shown = {column: row.get(column) for column in key}
            raise UndecodableRecord(
                f"a delete of the key {shown} that also has other columns. This happens if the source has "
                "REPLICA IDENTITY USING INDEX beside a primary key, and another row was deleted. Give the "
                "table REPLICA IDENTITY DEFAULT or FULL; if the table has a row with this key, list it in "
                "debezium.zero_keys"
            )
        # Without schemas, a default of true is unknown.
        if any(row[name] is not True or self._defaults for name in logged):
            return row
        return {column: value for column, value in row.items() if column in key}

    def updated(self, row: Row) -> Row:
        """An updated row without the NULLs that the connector sends for unchanged values."""
        if kept := self._kept_if_null:
            return {name: value for name, value in row.items() if value is not None or name not in kept}
        return row

    def is_zero(self, row: Row, key: tuple[str, ...]) -> bool:
        """Whether the row's key may consist only of fillers, so that the real key is unknown."""
        return not self._has_zero_keys and all(self.is_filler(column, row.get(column)) for column in key)

    def is_filler(self, column: str, value: Any) -> bool:
        """Whether the value may be the connector's filler for a value that the log does not contain."""
        default = self._defaults.get(column)
        if not value or value in _ZEROS or (default is not None and value == default):
            return True
        if isinstance(value, datetime):
            return value.replace(tzinfo=None) == datetime(1970, 1, 1)
        return isinstance(value, str) and _TEXTS.fullmatch(value) is not None


def _default(field: Field, reader: Reader) -> Any:
    try:
        return None if field.default is None else reader.read(field.default)
    except REFUSALS:
        return None


def _is_beyond(value: Any) -> bool:
    return value is LOST or type(value) is BeyondCalendar


def _none_beyond(value: Any) -> Any:
    if isinstance(value, list):
        return [_none_beyond(item) for item in value]
    return None if _is_beyond(value) else value


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
