"""Debezium's records with schemas in a registry. JSON records in the same topics are read as usual.

Records may name their schemas in headers (`ids_in: header`). The ids are moved before the bytes of key and
value, and the records are read as usual. A value alone does not identify its schema, so `route` leaves every
record to `explain`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from handlers import Change
from worker.formats.debezium.connect.schema import Envelopes, Head, Split
from worker.formats.debezium.format import OPERATIONS, Debezium
from worker.formats.debezium.postgres_types import AVRO_MARK, lacks_values
from worker.formats.debezium.rows import RowShape
from worker.formats.debezium.settings import DebeziumSettings
from worker.formats.debezium.source import REFUSALS, Source, log_position
from worker.formats.interface import LogPosition, PlainRoute, Record, Route, Skip, UndecodableRecord
from worker.formats.json_rows import Practice, Shapes
from worker.formats.schema_registry.avro.envelopes import Placed, RowsReader
from worker.formats.schema_registry.avro.values import READ_ERRORS
from worker.formats.schema_registry.client import Client
from worker.formats.schema_registry.ids import framed, names_schema
from worker.formats.schema_registry.schemas import Schemas
from worker.formats.schema_registry.settings import SchemaRegistrySettings

_MAGIC = b"\0"
_FAULTS = (*REFUSALS, *READ_ERRORS)

Table = tuple[str, str | None, str | None, str | None]


def schemas_of(
    settings: SchemaRegistrySettings,
    folder: Path,
    *,
    patience: float | None = None,
    rebuilt: Callable[[], object] = lambda: None,
) -> Schemas:
    """The schemas of a worker's registry. `patience`, `rebuilt`: see Schemas."""
    return Schemas(
        lambda: Client(settings, folder),
        id_bytes=settings.id_bytes,
        in_headers=settings.ids_in == "header",
        max_memory=settings.max_memory,
        patience=patience,
        rebuilt=rebuilt,
    )


class _RegistryEnvelopes(Envelopes):
    """A splitter of values, including those that name their schema by id."""

    def __init__(self, schemas: Schemas) -> None:
        super().__init__()
        self._get, self._sizes = schemas.get, schemas.heads.sizes

    def split(self, value: bytes) -> Split:
        size = self._sizes.get(value[:1])
        if size is not None and len(value) > size:
            return self._get(value[:size]).split(value)
        return super().split(value)


class _Rows(NamedTuple):
    """The readers for rows of one table with one schema."""

    shape: RowShape
    practice: Practice[RowsReader]
    """Decides when to generate code for a table's rows, which takes some milliseconds."""


class DebeziumWithRegistry(Debezium):
    """Debezium's format with a registry. All threads share one object without a lock, as with `Debezium`."""

    def __init__(self, settings: DebeziumSettings | None, schemas: Schemas) -> None:
        super().__init__(settings, lambda: _RegistryEnvelopes(schemas))
        self._schemas = schemas
        self._sizes = schemas.heads.sizes
        self._of_json = self._router.route
        self.route = self._route
        self.transactions = lambda record: self._router.transactions(self._whole(record))
        self._latest: dict[bytes, _Rows] = {}
        """Head of records -> readers of the last record's rows."""
        self._rows = Shapes[tuple[bytes, Table], _Rows]()

    def ready(self, records: Sequence[Record]) -> int:
        """Count the first records with known schemas, and request the missing schemas."""
        size, settled = self._sizes[_MAGIC], self._schemas.settled
        heads = {value[:size] for record in records if (value := record.value())}
        heads |= {key[:size] for record in records if (key := record.key())}
        missing = {head for head in heads if head[:1] == _MAGIC and len(head) == size and not settled(head)}
        if not missing:
            return len(records)
        first, wanted = len(records), dict[bytes, int]()
        for place, record in enumerate(records):
            for text in (record.value(), record.key()):
                if text and (head := text[:size]) in missing:
                    first = min(first, place)
                    wanted.setdefault(head, record.timestamp()[1])
        self._schemas.want(wanted)
        return first

    def explain(self, record: Record) -> Route | Skip:
        try:
            return super().explain(record)
        except UndecodableRecord as error:
            if not self._schemas.heads.in_headers and names_schema(record):
                raise UndecodableRecord(
                    f"{error}; a header of the record names a schema: set schema_registry.ids_in: header"
                ) from None
            raise

    @staticmethod
    def _whole(record: Record) -> Record:
        """The record, with its schemas' ids before its key and value. Raises UndecodableRecord."""
        return record

    # ---- routes and positions

    def _route(self, value: bytes | None) -> Route:
        size = None if value is None else self._sizes.get(value[:1])
        if value is None or size is None or len(value) <= size:
            return self._of_json(value)
        envelope = self._schemas.get(value[:size]).envelope
        if envelope is None:
            return self._router.of_envelope(self._envelopes.split(value).payload)
        database, schema, table, op = envelope.route(value, size)
        if op not in OPERATIONS:
            raise LookupError("not a row")  # `explain` decides
        return PlainRoute(schema or database or "", table or "", op == "t")

    def _placed(self, record: Record) -> Placed | None:
        value = record.value()
        size = None if value is None else self._sizes.get(value[:1])
        if value is None or size is None or len(value) <= size:
            return None
        envelope = self._schemas.get(value[:size]).envelope
        try:
            return None if envelope is None else envelope.placed(value, size)
        except _FAULTS:
            return None

    def source_time_ms(self, record: Record) -> int | None:
        record = self._whole(record)
        placed = self._placed(record)
        if placed is None:
            return super().source_time_ms(record)
        return placed.source.ts_ms if placed.source.ts_ms is not None else placed.ts_ms

    def log_position(self, record: Record) -> LogPosition | None:
        try:
            record = self._whole(record)
            placed = self._placed(record)
            if placed is None:
                return super().log_position(record)
        except UndecodableRecord:  # its router reports the error
            return None
        return LogPosition(placed.source.name, log_position(placed.source), placed.op == "t")

    def learn(self, record: Record) -> None:
        try:
            super().learn(self._whole(record))
        except UndecodableRecord:  # its router reports the error
            return

    # ---- changes

    def decode(self, record: Record, into: list[Change]) -> None:
        record = self._whole(record)
        value = record.value()
        size = None if value is None else self._sizes.get(value[:1])
        if value is None or size is None:
            super().decode(record, into)
            return
        head = value[:size]
        rows = self._latest.get(head)
        if rows is not None and (read := rows.practice.decoder) is not None:
            try:
                message, before, after = read(value, size)
                source, shape = message.source, rows.shape
                if not self._is_of(shape, source):
                    found = self._rows.get((head, _table(source)))
                    read = None if found is None else found.practice.decoder
                    if found is None or read is None or not self._is_of(found.shape, source):
                        raise ValueError("another table's")
                    self._latest[head] = found
                    shape = found.shape
                    message, before, after = read(value, size)
                if message.op in OPERATIONS and not (
                    shape.may_lack_values and (AVRO_MARK in value or lacks_values(value))
                ):
                    into.extend(self._changes(message, (before, after), shape, record))
                    return
            except _FAULTS:
                pass
        super().decode(record, into)

    def _shape(self, head: Head | None, source: Source, *, is_flat: bool = False) -> RowShape:
        shape = super()._shape(head, source, is_flat=is_flat)
        if head is not None and head.closes is None and not is_flat:
            self._count(head, source, shape)
        return shape

    def _count(self, head: Head, source: Source, shape: RowShape) -> None:
        """Count a record of this shape that was read on the slow path. A frequent shape gets its own code."""
        key = head.bytes, _table(source)
        rows = self._rows.get(key)
        if rows is None or rows.shape is not shape:
            rows = _Rows(shape, Practice(lambda _: self._rows_reader(head, shape)))
            if self._rows.add(key, rows, len(shape.types or ())):
                self._latest.clear()
        rows.practice.met(None)
        if rows.practice.decoder is not None:
            self._latest[head.bytes] = rows

    def _rows_reader(self, head: Head, shape: RowShape) -> RowsReader:
        """Generate code for the rows. Raises ValueError for rows that are not read by generated code."""
        envelope = self._schemas.get(head.bytes).envelope
        read = None if envelope is None else envelope.rows(shape.readers)
        if read is None:
            raise ValueError("rows that are read like JSON")
        return read


def _table(source: Source) -> Table:
    return source.name, source.db, source.schema, source.table


_MOST_TABLES = 10_000


class DebeziumWithHeaders(DebeziumWithRegistry):
    """Debezium's format with ids in headers. All threads share one object without a lock."""

    def __init__(self, settings: DebeziumSettings | None, schemas: Schemas) -> None:
        super().__init__(settings, schemas)
        self.route = self._refuse
        self._heads = schemas.heads
        self._explained: set[tuple[bytes | None, str, str]] = set()
        """(head, database, table) of records from a supported connector of Debezium."""

    def _refuse(self, _value: bytes | None) -> NoReturn:
        raise LookupError("its headers describe the record")

    def ready(self, records: Sequence[Record]) -> int:
        """See `NamesSchemas`."""
        wanted = dict[bytes, int]()
        first = len(records)
        for place, record in enumerate(records):
            try:
                whole = framed(record)
            except UndecodableRecord:  # `explain` raises it
                continue
            for text in (whole.value(), whole.key()):
                head = self._heads.of(text) if text else None
                if head is not None and not self._schemas.settled(head):
                    first = min(first, place)
                    wanted.setdefault(head, record.timestamp()[1])
        if wanted:
            self._schemas.want(wanted)
        return first

    def explain(self, record: Record) -> Route | Skip:
        """Route or skip any record. Raises UndecodableRecord."""
        whole = framed(record)
        value = whole.value()
        try:
            found = self._route(value)
        except Exception:  # after any exception, the slow path examines the whole record
            return super().explain(whole)
        known = None if value is None else self._heads.of(value), found.database, found.table
        if known in self._explained:
            return found
        explained = super().explain(whole)
        if not isinstance(explained, Skip):
            if len(self._explained) >= _MOST_TABLES:
                self._explained.clear()
            self._explained.add(known)
        return explained

    @staticmethod
    def _whole(record: Record) -> Record:
        return framed(record)


def debezium_with(schemas: Schemas, settings: DebeziumSettings | None) -> DebeziumWithRegistry:
    """Make the format for Debezium's records with these schemas."""
    return (DebeziumWithHeaders if schemas.heads.in_headers else DebeziumWithRegistry)(settings, schemas)
