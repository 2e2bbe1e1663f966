"""Maxwell's records: one row in each, as JSON, with DDL on a separate topic.

https://maxwells-daemon.io/dataformat/, and Maxwell's `row/RowMap.java` and `schema/ddl/DDLMap.java`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import msgspec

from handlers import Change
from handlers.api import Operation
from worker.formats.decoding import hint_at, stranger
from worker.formats.images import Image, changes_from, check_key, deleted, lacking, statement_from, updated
from worker.formats.interface import LogPosition, Named, PlainRoute, Record, Route, Skip, UndecodableRecord
from worker.formats.json_rows import READ_ERRORS, Row, Shapes
from worker.formats.maxwell.history import (
    DATABASE_DDL,
    ROW_TYPES,
    TABLE_DDL,
    MaxwellHistory,
    Statement,
    log_position_of,
    read_statement,
    statement_for,
)
from worker.formats.maxwell.rows import Header, Message, RowShape
from worker.formats.table_history import TableDefinition

_OPERATIONS: Mapping[str, Operation] = {
    "insert": "insert",
    "update": "update",
    "delete": "delete",
    "bootstrap-insert": "snapshot",
}
_SKIPPED_TYPES: Mapping[str, str] = {
    "bootstrap-start": "bootstrap",
    "bootstrap-complete": "bootstrap",
    "heartbeat": "heartbeat",
    **dict.fromkeys(DATABASE_DDL, "database_ddl"),
}


class MaxwellRoute(msgspec.Struct, gc=False):
    """The fields that name a row's database and table. Records of other types go to `explain`."""

    database: str
    table: str
    type: Literal["insert", "update", "delete", "bootstrap-insert"]

    alone: ClassVar[bool] = False


class _Envelope(msgspec.Struct, gc=False):
    encrypted: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Ending(msgspec.Struct, gc=False):
    xid: int | None = None
    commit: bool = False


_read_ending = msgspec.json.Decoder(_Ending).decode
_read_header = msgspec.json.Decoder(Header).decode
_read_envelope = msgspec.json.Decoder(_Envelope).decode
_read_columns = msgspec.json.Decoder(Message[dict[str, msgspec.Raw]]).decode
_KeyColumns = dict[str, msgspec.Raw]
_read_key: Callable[[bytes], Any] = msgspec.json.Decoder(
    _KeyColumns | tuple[str, str, list[_KeyColumns]]
).decode


class Maxwell:
    """The format of Maxwell's JSON. All threads share one object."""

    name = "maxwell"

    def __init__(self) -> None:
        self.route: Callable[[bytes], Route] = msgspec.json.Decoder(MaxwellRoute).decode
        self._history = MaxwellHistory()
        self.log_position: Callable[[Record], LogPosition | None] = log_position_of
        self.learn: Callable[[Record], None] = self._history.learn
        # Threads share both without a lock: each access is one dict or attribute operation. Two threads that
        # miss at the same time make the same shape twice.
        self._shapes = Shapes[tuple[Any, ...], RowShape]()
        self._recent: RowShape | None = None

    def explain(self, record: Record) -> Route | Skip:
        """Route or skip a record that `route` refused, or whose database or table is empty."""
        value = record.value()
        if value is None:
            return Skip("tombstone")
        try:
            header = _read_header(value)
            if header.type in _SKIPPED_TYPES:
                return Skip(_SKIPPED_TYPES[header.type])
            if header.type in TABLE_DDL:
                statement = read_statement(value)
                return PlainRoute(*statement.name_after, True)
        except READ_ERRORS as error:
            raise _undecodable(value, error) from None
        if header.type not in ROW_TYPES:
            hint = hint_at(value, "maxwell")
            raise UndecodableRecord(f"not a Maxwell record: type {header.type!r}{hint}")
        if not header.database or not header.table:
            raise UndecodableRecord("not a Maxwell record: a row without a database and a table")
        return PlainRoute(header.database, header.table)

    def source_time_ms(self, record: Record) -> int | None:
        """The time of the binlog event, `ts`."""
        return _time_ms(_read_header(record.value() or b""))

    def transactions(self, record: Record) -> Named:
        """A transaction's last row has `commit`."""
        ending = _read_ending(record.value() or b"")
        name = None if ending.xid is None else str(ending.xid)
        return name, None if ending.commit else name

    def decode(self, record: Record, into: list[Change]) -> None:
        """Append the change of a row (two if the row's key changed), or one for a DDL statement."""
        value = record.value()
        if value is None:
            return
        # Most records have the previous record's shape. Then that shape's decoder reads them in one pass.
        recent = self._recent
        decoder = None if recent is None else recent.practice.decoder
        if recent is not None and decoder is not None:
            try:
                message = decoder.decode(value)
                if self._shapes.get(self._shape_key(message, record)[0]) is recent:
                    into.extend(_changes(message, decoder.row(message.data), recent, record))
                    return
            except READ_ERRORS:
                pass
        try:
            into.extend(self._read(value, record))
        except UndecodableRecord:
            raise
        except READ_ERRORS as error:
            raise _undecodable(value, error) from None

    def _read(self, value: bytes, record: Record) -> Sequence[Change]:
        """The slow path: find or make the record's shape, and read the record with it."""
        header = _read_header(value)
        if header.type in TABLE_DDL:
            return _statement(read_statement(value), record)
        if header.type in _SKIPPED_TYPES:
            return ()
        if header.type not in ROW_TYPES:
            raise UndecodableRecord(f"not a Maxwell record: type {header.type!r}")
        whole = _read_columns(value)
        key, definition = self._shape_key(whole, record)
        shape = self._shapes.get(key)
        # Names in the record's key are in lower case, whatever spelling the table has now.
        if shape is None or any(name not in whole.data for name in shape.key_columns or ()):
            shape = RowShape(definition, key[-1], whole.data)
            check_key(shape.key_columns or (), whole.data)  # all later rows use this spelling of the key
            self._shapes.add(key, shape, len(whole.data))
        message, row = shape.read(value)
        self._recent = shape
        return _changes(message, row, shape, record)

    def _shape_key(
        self, message: Message[Any], record: Record
    ) -> tuple[tuple[str, str, int, tuple[str, ...]], TableDefinition | None]:
        """The lookup key of the row's shape, and the table's definition at the row's position."""
        definition = self._history.find(message, record)
        columns = message.key_columns
        if columns is None:
            columns = _key_columns(record.key())
            if columns is None:
                columns = (definition.key_columns or ()) if definition is not None else ()
        return (message.database, message.table, id(definition), columns), definition


def _key_columns(key: bytes | None) -> tuple[str, ...] | None:
    """The column names in a Kafka key, in lower case. None if it names none, as for a table without a key.

    `{"database": .., "table": .., "pk.id": 1}`, or with kafka_key_format = array `[.., .., [{"id": 1}]]`."""
    if not key:
        return None
    try:
        found = _read_key(key)
    except READ_ERRORS:
        return None
    if isinstance(found, tuple):
        return tuple(name for column in found[2] for name in column) or None
    return tuple(name[3:] for name in found if name.startswith("pk.")) or None


def _changes(message: Message[Any], row: Row, shape: RowShape, record: Record) -> Sequence[Change]:
    if message.reason is not None:
        raise UndecodableRecord(f"Maxwell could not write this row: {message.reason}")
    op, key, types = _OPERATIONS.get(message.type), shape.key_columns, shape.types
    if op is None:
        raise UndecodableRecord(f"not a Maxwell record: it has a row, but type {message.type!r}")
    ms, transaction = message.ts * 1000, None if message.xid is None else str(message.xid)
    if op == "delete":
        images: tuple[Image, ...] = (deleted(row, key, None if types is None else types.keys()),)
    elif op != "update":
        images = (Image(op, None, row),)
    else:
        # If `old` is empty, no visible value changed, or none was logged. The key still identifies the row.
        old = shape.read_old(message.old) or {}
        before = {**row, **old} if old or not key else None
        lacks = None if types is None else lacking(types.keys(), row)
        images = updated(before, row, key, lacks=lacks, before_is_whole=not lacks and before is not None)
    return changes_from(images, record, key=key, types=types, time_ms=ms, transaction=transaction)


def _time_ms(header: Header) -> int:
    return header.ts if header.type.startswith(("table-", "database-")) else header.ts * 1000


def _statement(statement: Statement, record: Record) -> list[Change]:
    sql = statement.sql
    if statement.type == "table-alter" and statement.after is not None:
        sql = statement_for(*statement.name_before, statement.after, sql)
    return statement_from(sql, record, truncates=False, time_ms=_time_ms(statement), transaction=None)


def _undecodable(value: bytes, error: Exception) -> UndecodableRecord:
    try:
        if _read_envelope(value).encrypted is not msgspec.UNSET:
            return UndecodableRecord("the record is encrypted; set Maxwell's encrypt = none")
    except READ_ERRORS:
        pass
    return stranger(value, "Maxwell record", error, "maxwell")
