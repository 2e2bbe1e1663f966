"""Routes of Debezium's records, from the fields that name the table. Nothing else is decoded."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from worker.formats.debezium.column_types import SchemaChange, drops_again, read_schema_change, table_of
from worker.formats.debezium.connect.schema import BEGIN, Envelopes
from worker.formats.debezium.flat import FlatRecord, flat_record, names_itself
from worker.formats.debezium.rows import Transaction
from worker.formats.debezium.settings import DebeziumSettings
from worker.formats.debezium.source import ROWS, Payload, Row, refuse_others
from worker.formats.decoding import stranger
from worker.formats.interface import ALONE, UNKNOWN, Named, PlainRoute, Record, Route, Skip, UndecodableRecord
from worker.formats.json_rows import DECODE_ERRORS, number

_HEARTBEATS = "__debezium-heartbeat"
_AVRO_HEAD = 5
_NOTIFICATION = frozenset(("id", "aggregate_type", "type", "additional_data"))
"""The members of records in the topic `notification.sink.topic.name`."""
_BESIDE_SOURCE = frozenset(("op", "ddl", "tableChanges"))
"""An envelope, a schema change or a record of the schema history topic has one of these members."""
_SIGNALS = frozenset(
    (
        *("execute-snapshot", "stop-snapshot", "pause-snapshot", "resume-snapshot"),
        *("log", "schema-changes", "set-binlog-position"),
    )
)
"""The types of records in the topic `signal.kafka.topic`."""


class _Source(msgspec.Struct, gc=False):
    """The `source` block of a row from MySQL or MariaDB, which is also the row's route."""

    database: str = msgspec.field(name="db", default="")
    table: str = ""
    schema: str | None = None
    alone: ClassVar[bool] = False


class _Envelope(msgspec.Struct, gc=False):
    op: str
    source: _Source


class _Origin(msgspec.Struct, gc=False):
    gtid: str | None = None
    number: int | None = msgspec.field(name="txId", default=None)  # of PostgreSQL


class _Ending(msgspec.Struct, gc=False):
    source: _Origin
    op: str | None = None
    transaction: Transaction | None = None


class _Connector(msgspec.Struct, gc=False):
    connector: str = ""


class _Connected(msgspec.Struct, gc=False):
    source: _Connector


_read_connected = msgspec.json.Decoder(_Connected).decode
_read_ending = msgspec.json.Decoder(_Ending).decode
_read_envelope = msgspec.json.Decoder(_Envelope).decode
_read_values = msgspec.json.Decoder(dict[str, Any], float_hook=number).decode
_TOMBSTONE = PlainRoute("", "")


class Router:
    """Routes the records of all topics of the format. Threads share it without a lock."""

    def __init__(self, envelopes: Envelopes, settings: DebeziumSettings) -> None:
        self._split = envelopes.split
        self._settings = settings

    def route(self, value: bytes | None) -> Route:
        """The route of a row or truncate in an envelope. A tombstone has an empty route, because an exception
        would put the rest of its poll on the slow path. Raises any exception for other records."""
        if value is None:
            return _TOMBSTONE
        return self.of_envelope(self._split(value).payload if value.startswith(BEGIN) else value)

    @staticmethod
    def of_envelope(payload: Payload) -> Route:
        envelope = _read_envelope(payload)
        source = envelope.source
        if envelope.op in ROWS and source.schema is None:
            return source
        if envelope.op in ROWS or envelope.op == "t":
            return PlainRoute(source.schema or source.database, source.table, envelope.op == "t")
        raise LookupError  # not a row in an envelope: `explain` decides

    def explain(self, record: Record) -> Route | Skip:
        """Route or skip any record. Raises UndecodableRecord."""
        value = record.value()
        if value is None:
            return Skip("tombstone")
        try:
            payload = self._split(value).payload
            refuse_others(_read_connected(payload).source.connector)
            found = self.of_envelope(payload)
        except (*DECODE_ERRORS, LookupError):
            other = self.without_envelope(record, value)
            if isinstance(other, Skip):
                return other
            if isinstance(other, FlatRecord):
                return PlainRoute(other.source.schema or other.source.db or "", other.source.table or "")
            table = table_of(other)
            return Skip("database_ddl") if table is None else PlainRoute(*table, True)
        if found.database and found.table:
            return found
        raise UndecodableRecord("not a Debezium record: `source` names no database and table")

    def transactions(self, record: Record) -> Named:
        value = record.value()
        if value is None:
            return UNKNOWN
        try:
            ending = _read_ending(self._split(value).payload)
        except DECODE_ERRORS:
            flat = self.without_envelope(record, value)
            if not isinstance(flat, FlatRecord):
                return UNKNOWN
            name, in_snapshot = flat.transaction, flat.op == "snapshot"
            if name and flat.source.schema:  # PostgreSQL: the row's LSN follows
                name = name.partition(":")[0]
        else:
            source, told, in_snapshot = ending.source, ending.transaction, ending.op in (None, "r")
            name = (told and told.id) or source.gtid if source.number is None else str(source.number)
        return ALONE if in_snapshot else (name, name)

    def without_envelope(self, record: Record, value: bytes) -> Skip | SchemaChange | FlatRecord:
        """Classify a record that is not a row in an envelope. Raises UndecodableRecord."""
        payload = self._split(value).payload
        try:
            values = _read_values(payload)
        except DECODE_ERRORS as error:
            raise undecodable(value, error) from None
        if isinstance(values.get("source"), dict) and values.keys() & _BESIDE_SOURCE:
            refuse_others(str(values["source"].get("connector") or ""))
            return _envelope_without_row(payload, values)
        if {"status", "id", "event_count", "data_collections"} <= values.keys():
            return Skip("transaction")
        if record.topic().startswith(_HEARTBEATS):
            return Skip("heartbeat")
        reason = None if names_itself(record, self._settings) else _reason_of(values)
        return flat_record(record, values, self._settings) if reason is None else Skip(reason)


def _reason_of(values: Row) -> str | None:
    """The reason to skip a record without an envelope or headers of a row. None: it may be a row."""
    if values.keys() == {"ts_ms"}:
        return "heartbeat"
    if _NOTIFICATION <= values.keys() <= _NOTIFICATION | {"timestamp"}:
        return "notification"
    if {"type", "data"} <= values.keys() <= {"id", "type", "data"} and str(values["type"]) in _SIGNALS:
        return "signal"
    return None


def _envelope_without_row(payload: Payload, values: Row) -> Skip | SchemaChange:
    if values.get("op") == "m":
        return Skip("message")
    if "op" not in values and "position" in values and "connector" not in values["source"]:
        return Skip("schema_history")
    try:
        if "ddl" in values:
            change = read_schema_change(payload)
            return Skip("snapshot_drop") if drops_again(change) else change
        _read_envelope(payload)
    except DECODE_ERRORS as error:
        raise UndecodableRecord(f"not a Debezium record: {error}") from None
    raise UndecodableRecord(f"not a Debezium record: the operation {str(values['op'])[:20]!r} is not known")


def undecodable(value: bytes, error: Exception) -> UndecodableRecord:
    """The error for a value that is not a record of the format. It says what the value seems to be."""
    if value[:1] == b"\0" and len(value) > _AVRO_HEAD:
        return UndecodableRecord(
            "not JSON, but a record whose schema is in a registry (schema "
            f"{int.from_bytes(value[1:_AVRO_HEAD], 'big')}): set schema_registry.url to its address, or "
            "value.converter=org.apache.kafka.connect.json.JsonConverter in the connector"
        )
    return stranger(value, "Debezium record", error, "debezium")
