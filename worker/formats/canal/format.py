"""Canal's messages: flat messages (JSON, all values as text, several rows in a message) or packets.

Alibaba Canal writes flat messages (its class `FlatMessage`) with `canal.mq.flatMessage = true`:
https://github.com/alibaba/canal/wiki/Canal-Kafka-RocketMQ-QuickStart
Otherwise it writes protobuf: see `worker.formats.canal.packet_entries`. The first byte distinguishes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from handlers import Change
from handlers.api import Operation
from worker.formats.canal.rows import (
    REFUSALS,
    Message,
    RowsDecoder,
    RowShape,
    TiDB,
    read_shape,
    refuse_sql,
    refuse_statement,
)
from worker.formats.decoding import hint_at, stranger
from worker.formats.images import Image, changes_from, deleted, lacking, place_of, statement_from, updated
from worker.formats.interface import (
    Apart,
    Milliseconds,
    Named,
    PlainRoute,
    Record,
    Route,
    Skip,
    UndecodableRecord,
)
from worker.formats.json_rows import DECODE_ERRORS, Row, Shapes

if TYPE_CHECKING:
    from worker.formats.canal.packet_rows import Packets

_SKIPPED_TYPES: Mapping[str, str] = {
    "TRANSACTIONBEGIN": "transaction",
    "TRANSACTIONEND": "transaction",
    "MHEARTBEAT": "heartbeat",
    "TIDB_WATERMARK": "watermark",
}
_OPEN_PROTOCOL = bytes((0, 0, 0, 0, 0, 0, 0, 1))
"""The first bytes of keys in TiCDC's open protocol: its version."""

_PACKET = b"\x08\x10\x18"
"""Possible first bytes of a packet: the tags of its first fields. No JSON begins with one of them."""

_MOST_TABLES = 100_000
"""Most tables whose decoders are remembered."""


class CanalRoute(msgspec.Struct, gc=False):
    """The fields of a message that name its database and table, and say whether it is DDL."""

    database: str
    table: str
    alone: bool = msgspec.field(name="isDdl", default=False)


class _Envelope(msgspec.Struct, gc=False):
    """The fields that `explain` needs, also for a message without a table."""

    type: str
    database: str | None = None
    table: str | None = None
    is_ddl: bool | None = msgspec.field(name="isDdl", default=None)
    gtid: str | None = None
    data: msgspec.Raw = msgspec.Raw(b"null")
    sql: Any = None  # the table's processor reports a wrong one


class _Time(msgspec.Struct, gc=False):
    """The field with the time of the change."""

    es: Milliseconds


_read_envelope = msgspec.json.Decoder(_Envelope, strict=False).decode
_read_time = msgspec.json.Decoder(_Time, strict=False).decode


class Canal:
    """The format of Canal's messages. All threads share one object."""

    name = "canal"

    def __init__(self) -> None:
        self.route: Callable[[bytes], Route] = msgspec.json.Decoder(CanalRoute).decode
        # Threads share both without a lock: each access is one dict operation. Two threads that miss at the
        # same time make the same shape twice.
        self._shapes = Shapes[bytes, RowShape]()
        self._of_table: dict[str, RowsDecoder | None] = {}  # table -> decoder of its last rows

    @cached_property
    def _packets(self) -> Packets:
        from worker.formats.canal.packet_rows import Packets  # noqa: PLC0415 - JSON needs no protobuf

        return Packets()

    def explain(self, record: Record) -> Route | Skip | Apart:
        """Route, skip or split a record that `route` refused, or whose database or table is empty."""
        value = record.value()
        if value is None:
            return Skip("tombstone")
        if value and value[0] in _PACKET:
            return self._packets.explain(value)
        try:
            message = _read_envelope(value)
        except DECODE_ERRORS as error:
            if (record.key() or b"").startswith(_OPEN_PROTOCOL):
                raise UndecodableRecord(
                    "a record of TiCDC's open protocol: set protocol=canal-json in the changefeed's sink-uri"
                ) from None
            raise stranger(value, "Canal message", error, "canal") from None
        if message.type in _SKIPPED_TYPES:
            return Skip(_SKIPPED_TYPES[message.type])
        if message.type == "QUERY" and message.table and not message.is_ddl:
            return Skip("query")  # a statement whose rows have their own messages
        # For some DDL, Canal keeps the backticks around the database's name.
        database = (message.database or "").strip("`")
        if not message.table:
            hint = hint_at(value, "canal")
            if hint or message.is_ddl is None or bytes(message.data) not in (b"null", b"[]"):
                raise UndecodableRecord(f"not a Canal message: it names no table{hint}")
            if message.type in OPERATIONS:
                refuse_sql("Canal message", str(message.sql or ""))
            return place_of(str(message.sql or ""), database) if message.is_ddl else Skip("transaction")
        if not database:
            raise UndecodableRecord(f"not a Canal message: table {message.table!r} without a database")
        return PlainRoute(database, message.table, message.is_ddl or False)

    def source_time_ms(self, record: Record) -> int | None:
        """The time of the record's first binlog event, `es`."""
        value = record.value() or b""
        if value and value[0] in _PACKET:
            return self._packets.source_time_ms(value)
        return _read_time(value).es

    def transactions(self, record: Record) -> Named:
        """Packets have marks. Messages have a gtid at most."""
        value = record.value() or b""
        if value and value[0] in _PACKET:
            return self._packets.transactions(value)
        name = _read_envelope(value).gtid or None
        return name, name

    def decode(self, record: Record, into: list[Change]) -> None:
        """Append one change for each row of the message (two if its key changed), or one for a DDL
        statement."""
        if self.decode_many("", iter((record,)), into, []) is None:
            return
        value = record.value()
        if value is None:
            return
        if value and value[0] in _PACKET:
            into.extend(self._packets.changes(value, record))
            return
        try:
            shape, message, rows = self._read(value)
        except DECODE_ERRORS as error:
            raise stranger(value, "Canal message", error, "canal") from None
        into.extend(changes_of(rows, message, shape, record))

    def decode_many(
        self, table: str, records: Iterator[Record], into: list[Change], ends: list[int]
    ) -> Record | None:
        """See `DecodesMany`. Records of several tables alternate, so each table's last decoder is kept."""
        known = self._of_table.get(table)
        for record in records:
            try:
                value = record.value() or b""
                rows: list[Row] | None = None
                if known is not None:
                    try:
                        message = known.decode(value)
                        if (
                            message.mysql_type == known.mysql_type
                            and message.primary_key == known.primary_key
                        ):
                            shape, data = known.shape, message.data
                            if data is not None and len(data) == 1:  # most messages
                                rows = [known.row(data[0], value)]
                            else:
                                rows = known.rows(data, value)
                    except REFUSALS:
                        rows = None
                if rows is None:
                    if value and value[0] in _PACKET:
                        return record
                    shape, message, rows = self._read(value)
                    if table not in self._of_table and len(self._of_table) >= _MOST_TABLES:
                        self._of_table.clear()
                    known = self._of_table[table] = shape.practice.decoder
                if (  # most messages
                    rows
                    and len(rows) == 1
                    and message.type == "INSERT"
                    and not message.is_ddl
                    and message.tidb is None
                ):
                    key, types, ms, gtid = shape.key_columns, shape.types, message.es, message.gtid or None
                    topic, partition, offset = record.topic(), record.partition(), record.offset()
                    change = Change(
                        "insert", None, rows[0], key, None, ms, topic, partition, offset, 0, gtid, types
                    )
                    into.append(change)
                else:
                    into.extend(changes_of(rows, message, shape, record))
            except Exception:  # `decode` raises the reason
                return record
            ends.append(len(into))
        return None

    def _read(self, value: bytes) -> tuple[RowShape, Message[Any], list[Row] | None]:
        fields = read_shape(value)
        key = b"".join((fields.mysql_type, fields.primary_key))
        shape = self._shapes.get(key)
        if shape is None:
            shape = RowShape(fields.mysql_type, fields.primary_key)
            if self._shapes.add(key, shape, len(shape.types or ())):
                self._of_table.clear()
        return shape, *shape.read(value)


OPERATIONS: Mapping[str, Operation] = {"INSERT": "insert", "UPDATE": "update", "DELETE": "delete"}


def changes_of(
    rows: list[Row] | None, message: Message[Any], shape: RowShape, record: Record
) -> Iterable[Change]:
    """The changes of one message. Raises UndecodableRecord."""
    if message.tidb is not None:
        _refuse_part(message.tidb, message.type)
    if message.is_ddl:
        return _statement(message, rows, record)
    op = OPERATIONS.get(message.type)
    if not rows:
        if op is not None:
            refuse_sql("Canal message", message.sql)
        return ()
    if op is None:
        raise UndecodableRecord(f"not a Canal message: it has rows, but type {message.type!r}")
    key, types = shape.key_columns, shape.types
    ms, gtid = message.es, message.gtid or None
    topic, partition, offset = record.topic(), record.partition(), record.offset()
    if op == "insert":
        return [
            Change(op, None, row, key, None, ms, topic, partition, offset, index, gtid, types)
            for index, row in enumerate(rows)
        ]
    if op == "delete":
        columns = (types or {}).keys()
        images: Iterable[Image] = [deleted(row, key, columns) for row in rows]
    else:
        images = _updates(rows, message, shape)
    return changes_from(images, record, key=key, types=types, time_ms=ms, transaction=gtid)


def _refuse_part(tidb: TiDB, type_: str) -> None:
    """Raise UndecodableRecord if TiCDC sent only the row's key, because the row is large."""
    if type_ == "DELETE" or not (tidb.only_handle_key or tidb.claim_check_location):
        return
    raise UndecodableRecord(
        "TiCDC sent only the row's key, because the row is larger than its max-message-bytes: raise that and "
        "the topic's max.message.bytes, and set large-message-handle-option=none in the changefeed; "
        "handle-key-only and claim-check cannot be read"
    )


def _updates(rows: list[Row], message: Message[Any], shape: RowShape) -> Iterable[Image]:
    """The images of each updated row. `old` contains only the columns that changed. If the key is one of
    them, the images are a delete under the old key and an insert under the new key."""
    try:
        olds = shape.read_old(message.old)
    except DECODE_ERRORS as error:
        raise UndecodableRecord(f"not a Canal message: `old`: {error}") from None
    types = (shape.types or {}).keys()
    if olds is None:  # the source did not log the old values
        return [Image("update", None, row, lacking(types, row)) for row in rows]
    if len(olds) != len(rows):
        raise UndecodableRecord(f"not a Canal message: {len(rows)} rows in `data`, {len(olds)} in `old`")
    images: list[Image] = []
    for old, row in zip(olds, rows, strict=True):
        if not old and old is not None and not shape.key_columns:
            raise UndecodableRecord(
                "an update without a key and without old values: set binlog_row_image=FULL at the source"
            )
        before = {**row, **old} if old else None
        lacks = lacking(types, row)
        images += updated(before, row, shape.key_columns, lacks=lacks, before_is_whole=not lacks)
    return images


def _statement(message: Message[Any], rows: list[Row] | None, record: Record) -> list[Change]:
    truncates, sql = message.type == "TRUNCATE", message.sql or ""
    refuse_statement("Canal message", has_rows=bool(rows), is_empty=not (truncates or sql.strip()))
    return statement_from(
        sql, record, truncates=truncates, time_ms=message.es, transaction=message.gtid or None
    )
