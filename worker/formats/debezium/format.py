"""Debezium's JSON records from MySQL, MariaDB and PostgreSQL: in envelopes or flattened, also with schemas.

See https://debezium.io/documentation/reference/stable/connectors/mysql.html#mysql-events. docs/formats.md
describes how each kind of record is handled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from handlers import Change
from handlers.api import Operation
from worker.formats.debezium.column_types import ddl_position, lessons, read_schema_change, statement
from worker.formats.debezium.connect.schema import Envelopes, Head
from worker.formats.debezium.flat import FlatRecord
from worker.formats.debezium.images import Keys, image_of, of_changed_key, of_moved_row
from worker.formats.debezium.postgres_types import lacks_values
from worker.formats.debezium.routes import Router, undecodable
from worker.formats.debezium.rows import ENDLESS, Message, Rows, RowShape, Sure
from worker.formats.debezium.settings import DebeziumSettings
from worker.formats.debezium.source import (
    REFUSALS,
    ROWS,
    Row,
    Source,
    log_position,
    logged_of,
    read_logged,
    refuse_others,
)
from worker.formats.images import NOTHING, Image, changes_from, check_key, lacking
from worker.formats.interface import LogPosition, Record, Route, Skip, UndecodableRecord, kafka_time
from worker.formats.json_rows import DECODE_ERRORS, Shapes
from worker.formats.table_history import TableHistory

OPERATIONS: Mapping[str, Operation] = {**ROWS, "t": "truncate"}
_MAX_TOPICS = 10_000


class Debezium:
    """The format of Debezium's records. All threads share one object."""

    name = "debezium"

    def __init__(
        self, settings: DebeziumSettings | None = None, envelopes: Callable[[], Envelopes] = Envelopes
    ) -> None:
        """`settings`: the configuration's section `debezium`. `envelopes`: makes a splitter of values."""
        self._settings = settings = settings or DebeziumSettings()
        # Threads share all of these without a lock: each access is one dict operation. Two threads that miss
        # at the same time make the same object twice.
        self._envelopes = envelopes()
        self._keys = Keys(envelopes())
        self._router = Router(envelopes(), settings)
        self.route: Callable[[bytes], Route] = self._router.route
        self.transactions = self._router.transactions
        self._history = TableHistory()
        self._shapes = Shapes[tuple[Any, ...], RowShape]()
        self._recent: dict[str, RowShape] = {}
        """Topic -> the shape of its last record. The next record nearly always has the same shape."""

    def explain(self, record: Record) -> Route | Skip:
        """Route or skip a record that `route` refused, or whose database or table is empty."""
        return self._router.explain(record)

    # ---- the position in the log

    def source_time_ms(self, record: Record) -> int | None:
        """The time when the source logged the change, `source.ts_ms`."""
        value = record.value()
        if value is None:
            return None
        try:
            logged = logged_of(value, self._envelopes)
        except DECODE_ERRORS:
            flat = self._flat(record, value)
            return None if flat is None else flat.source.ts_ms
        return logged.source.ts_ms if logged.source.ts_ms is not None else logged.ts_ms

    def log_position(self, record: Record) -> LogPosition | None:
        """The binlog file and position, or LSN. None for a tombstone, heartbeat or transaction marker."""
        value = record.value()
        if value is None:
            return None
        try:
            logged = logged_of(value, self._envelopes)
        except DECODE_ERRORS:
            flat = self._flat(record, value)
            return None if flat is None else LogPosition(flat.source.name, log_position(flat.source), False)
        source = logged.source
        if logged.op is None and not source.connector:
            return None
        if logged.ddl:
            return LogPosition(source.name, ddl_position(source), True)
        return LogPosition(source.name, log_position(source), logged.op == "t")

    def learn(self, record: Record) -> None:
        """Remember the definitions in a schema-change record's `tableChanges`."""
        value = record.value()
        if value is None:
            return
        try:
            change = read_schema_change(self._envelopes.split(value).payload)
        except DECODE_ERRORS:
            return
        order = ddl_position(change.source)
        for database, table, definition in lessons(change):
            self._history.learn(change.source.name, database, table, order, definition)

    def _flat(self, record: Record, value: bytes) -> FlatRecord | None:
        try:
            found = self._router.without_envelope(record, value)
        except UndecodableRecord:
            return None
        return found if isinstance(found, FlatRecord) else None

    # ---- changes

    def decode(self, record: Record, into: list[Change]) -> None:
        """Append the record's changes, or nothing if it contains none."""
        value = record.value()
        if value is None:
            return
        # Most records have the previous record's shape. Then that shape's decoder reads them in one pass.
        shape = self._recent.get(record.topic())
        decoder = None if shape is None else shape.practice.decoder
        if shape is not None and decoder is not None:
            payload = shape.payload(value)
            if payload is not None:
                try:
                    message = decoder.decode(payload)
                    if (
                        message.op in OPERATIONS
                        and self._is_of(shape, message.source)
                        and not (shape.may_lack_values and lacks_values(payload))
                    ):
                        into.extend(self._changes(message, decoder.rows(message), shape, record))
                        return
                except REFUSALS:
                    pass
        try:
            into.extend(self._read(record, value))
        except DECODE_ERRORS as error:
            raise undecodable(value, error) from None

    def _is_of(self, shape: RowShape, source: Source) -> bool:
        """Whether the record belongs to the shape's table and has the shape's definition."""
        if not shape.is_of(source):
            return False
        version = self._history.version
        if version == 0:
            return True
        sure, position = shape.sure, source.pos
        if (
            sure is not None
            and position is not None
            and sure.version == version
            and sure.file == source.file
            and sure.since <= position < sure.until
        ):
            return True
        table = source.name, source.db or "", source.table or ""
        order = log_position(source)
        if self._history.find(*table, order) is not shape.definition:
            return False
        if position is not None and order:
            until = self._history.until(*table, order)
            end = until[1] if until is not None and until[0] == order[0] else ENDLESS
            shape.sure = Sure(version, source.file, position, end)
        return True

    def _read(self, record: Record, value: bytes) -> Sequence[Change]:
        head, payload = self._envelopes.split(value)
        try:
            logged = read_logged(payload)
        except DECODE_ERRORS:
            logged = None
        if logged is None or logged.op not in OPERATIONS:
            other = self._router.without_envelope(record, value)
            if isinstance(other, Skip):
                return ()
            if isinstance(other, FlatRecord):
                return self._flat_changes(other, head, record)
            return statement(other, record)
        shape = self._shape(head, logged.source)
        if len(self._recent) >= _MAX_TOPICS:
            self._recent.clear()
        self._recent[record.topic()] = shape
        message, rows, lacks = shape.read(payload)
        return self._changes(message, rows, shape, record, lacks=lacks)

    def _changes(
        self,
        message: Message[Any],
        rows: Rows,
        shape: RowShape,
        record: Record,
        *,
        lacks: frozenset[str] | None = NOTHING,
    ) -> Sequence[Change]:
        source = message.source
        op = OPERATIONS[message.op]
        before, after = rows
        key_columns, types, is_whole = None, None, True
        if op != "truncate":
            key_columns = self._keys.columns(record.key(), record.topic(), shape.definition)
            types = shape.types
            if op == "delete":
                after, before = None, self._row_of_key(record, shape) if before is None else before
            elif after is None:
                raise UndecodableRecord(f"not a Debezium record: operation {message.op!r}, but no `after`")
            elif op != "update":
                before = None
            most = len(shape.columns)
            if after is None or shape.postgresql or len(after) < most or len(before or after) < most:
                image = image_of(Image(op, before, after, lacks), key_columns, shape)
                _, before, after, lacks, is_whole, _ = image
            if key_columns is not None:
                check_key(key_columns, before or {} if after is None else after)
        transaction = None if message.transaction is None else message.transaction.id
        if transaction is None:
            transaction = source.gtid
        time_ms = source.ts_ms if source.ts_ms is not None else message.ts_ms
        content = before, after, key_columns, None, kafka_time(record) if time_ms is None else time_ms
        place = record.topic(), record.partition(), record.offset()
        change = Change(op, *content, *place, 0, transaction, types, lacks, is_whole)
        if key_columns is None:
            return (change,)
        if op == "update":
            if before is not None and after is not None:
                for name in key_columns:
                    if before.get(name) != after.get(name):
                        return of_changed_key(change, shape, record)
            return (change,)
        return of_moved_row(change, shape, record, self._envelopes, is_ordered=self._settings.ordered)

    def _flat_changes(self, flat: FlatRecord, head: Head | None, record: Record) -> tuple[Change, ...]:
        if flat.by_topic and self._keys.tells_tables_apart(record.key()):
            raise UndecodableRecord(
                "ByLogicalTableRouter routed several tables into this topic, and the record does not name "
                "its table: set add.fields=db,table (for PostgreSQL schema,table)"
            )
        shape = self._shape(head, flat.source, is_flat=True)
        row = shape.typed(flat.row)
        time_ms = flat.source.ts_ms
        key_columns = self._keys.columns(record.key(), record.topic(), shape.definition)
        before, after = (row, None) if flat.op == "delete" else (None, row)
        sent = Image(flat.op, before, after, lacking(flat.row.keys(), row))
        image = image_of(sent, key_columns, shape)
        [change] = changes_from(
            (image,),
            record,
            key=key_columns,
            types=shape.types,
            time_ms=kafka_time(record) if time_ms is None else time_ms,
            transaction=flat.transaction,
        )
        return of_moved_row(change, shape, record, self._envelopes, is_ordered=self._settings.ordered)

    def _row_of_key(self, record: Record, shape: RowShape) -> Row:
        """The key of a deleted row, if the source does not log the row (`REPLICA IDENTITY NOTHING`)."""
        values = self._keys.values(record.key())
        if not values:
            raise UndecodableRecord("a delete without `before` and without a key: the deleted row is unknown")
        return shape.typed(values)

    # ---- shapes

    def _shape(self, head: Head | None, source: Source, *, is_flat: bool = False) -> RowShape:
        """Find or make a shape. Raises UndecodableRecord for an invalid schema or an unknown connector."""
        own = source.name, source.db or "", source.table or ""
        definition = self._history.find(*own, log_position(source)) if self._history.version else None
        # The shape keeps its definition alive, so the definition's id stays unique.
        table = source.name, source.connector, source.db, source.schema, source.table
        key = (head and head.schema, *table, is_flat, id(definition))
        shape = self._shapes.get(key)
        if shape is None:
            refuse_others(source.connector)
            shape = RowShape(head, source, definition, self._settings, is_flat=is_flat)
            if self._shapes.add(key, shape, len(shape.types or ())):
                self._recent.clear()
        return shape
