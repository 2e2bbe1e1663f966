"""The entries of a packet: route each one, and split a packet by table.

A packet contains everything that Canal read at once for its topic and partition: rows of several tables,
statements between them, and transaction markers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from handlers.api import Operation
from worker.formats.canal.rows import refuse_sql
from worker.formats.images import place_of as statement_place
from worker.formats.interface import SOME, UNKNOWN, Apart, Named, PlainRoute, Route, Skip, UndecodableRecord

_MESSAGES = 7
"""The type of packets with changes."""
_UNCOMPRESSED = (0, 1)
_BEGIN, _END = 1, 3
_ROWS = (0, 2)
"""Entry types: unspecified, ROWDATA."""
_ENTRIES_WITHOUT_ROWS = {1: "transaction", 3: "transaction", 4: "heartbeat", 5: "transaction"}
"""Entry type (TRANSACTIONBEGIN, TRANSACTIONEND, HEARTBEAT, GTIDLOG) -> why it is skipped."""
ROW_EVENTS: Mapping[int, Operation] = {1: "insert", 2: "update", 3: "delete"}
"""Event type -> operation."""
_EVENTS_WITHOUT_ROWS = {12: "transaction", 13: "transaction", 14: "transaction", 15: "heartbeat"}
"""Event type (GTID, XACOMMIT, XAROLLBACK, MHEARTBEAT) -> why it is skipped."""
_QUERY = 7
_MOST_INDEX = 2**31 - 1
"""Largest index of a change, because targets store it in 32 bits."""

# https://github.com/alibaba/canal/tree/master/protocol/src/main/java/com/alibaba/otter/canal/protocol
# (CanalProtocol.proto, EntryProtocol.proto): the fields in use. Building them here needs no compiler.
_PACKAGE = "binlane.canal"
_FIELDS: dict[str, dict[str, tuple[int, str]]] = {
    "Packet": {"type": (3, "int32"), "compression": (4, "int32"), "body": (5, "bytes")},
    "Messages": {
        "messages": (2, "repeated bytes"),
        # Not one of Canal's fields: Canal ignores it. For each message: the index of its first change in
        # the record before the split.
        "first_index": (7301, "repeated uint32"),
    },
    "Entry": {"header": (1, "Header"), "entry_type": (2, "int32"), "store_value": (3, "bytes")},
    "Header": {
        "execute_time": (6, "int64"),
        "schema_name": (8, "string"),
        "table_name": (9, "string"),
        "event_type": (11, "int32"),
        "gtid": (13, "string"),
    },
    "RowChange": {
        "event_type": (2, "int32"),
        "is_ddl": (10, "bool"),
        "sql": (11, "string"),
        "row_datas": (12, "repeated RowData"),
        "ran_in": (14, "string"),  # ddlSchemaName
    },
    "RowData": {"before_columns": (1, "repeated Column"), "after_columns": (2, "repeated Column")},
    "Column": {
        "name": (3, "string"),
        "is_key": (4, "bool"),
        "updated": (5, "bool"),
        "is_null": (6, "bool"),
        "value": (8, "string"),
        "mysql_type": (10, "string"),
    },
}


def _make() -> dict[str, Any]:
    """Build the message classes: name -> class."""
    file = descriptor_pb2.FileDescriptorProto(name="binlane/canal.proto", package=_PACKAGE, syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, (number, text) in fields.items():
            repeated, _, kind = text.rpartition(" ")
            added = message.field.add(name=field, number=number)
            added.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if kind in _FIELDS:
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                added.type = kinds.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()  # a private pool, so these names cannot conflict
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _FIELDS
    }


_CLASSES = _make()
Packet: Any = _CLASSES["Packet"]
Messages: Any = _CLASSES["Messages"]
Entry: Any = _CLASSES["Entry"]
RowChange: Any = _CLASSES["RowChange"]


class Content(NamedTuple):
    entries: Sequence[bytes]
    first_index: Sequence[int]
    """For each entry, the index of its first change."""


def read_content(value: bytes) -> Content:
    """Read a packet. Raises UndecodableRecord.

    An entry's first index is the number of bytes in the entries before it, because an entry has at least as
    many bytes as changes. So no other entry needs to be read, and a split keeps each change's index."""
    try:
        packet = Packet.FromString(value)
        if packet.type != _MESSAGES:
            raise UndecodableRecord(f"a Canal packet of type {packet.type}, not MESSAGES ({_MESSAGES})")
        if packet.compression not in _UNCOMPRESSED:
            raise UndecodableRecord(
                f"a Canal packet with compression {packet.compression}, which Canal's own clients cannot "
                "read from Kafka either; use the producer's kafka.compression.type"
            )
        body = Messages.FromString(packet.body)
    except DecodeError as error:
        raise UndecodableRecord(f"not a Canal packet: {error}") from None
    entries = list(body.messages)
    given = list(body.first_index)
    first_index = given or list(accumulate(map(len, entries), initial=0))[:-1]
    if len(first_index) != len(entries) or (entries and first_index[-1] + len(entries[-1]) > _MOST_INDEX):
        raise UndecodableRecord("not a Canal packet: its indexes do not fit its entries")
    return Content(entries, first_index)


def read_entry(data: bytes) -> Any:
    """Read an entry of a packet. Raises UndecodableRecord."""
    try:
        return Entry.FromString(data)
    except DecodeError as error:
        raise UndecodableRecord(f"not a Canal packet: one of its entries: {error}") from None


def row_change(entry: Any) -> Any:
    """Read an entry's rows or statement. Raises UndecodableRecord."""
    try:
        return RowChange.FromString(entry.store_value)
    except DecodeError as error:
        raise UndecodableRecord(f"not a Canal packet: the rows of an entry: {error}") from None


def explain(value: bytes) -> Route | Skip | Apart:
    """Route, skip or split a packet. Raises UndecodableRecord."""
    content = read_content(value)
    parts: list[tuple[PlainRoute, list[int]]] = []
    open_parts: dict[tuple[str, str], list[int]] = {}
    reasons: dict[str, None] = {}
    faults: dict[int, UndecodableRecord] = {}
    for place, data in enumerate(content.entries):
        try:
            found = place_of(read_entry(data))
        except UndecodableRecord as fault:
            faults[place] = fault
            continue
        if isinstance(found, Skip):
            reasons[found.reason] = None
        elif found.alone:
            # Later rows start new parts, because the statement may be about other tables too.
            parts.append((found, [place]))
            open_parts.clear()
        else:
            if parts and parts[-1][0].database != found.database:
                open_parts.clear()  # `databases` may gather both in one table, whose indexes must not go back
            table = found.database, found.table
            places = open_parts.get(table)
            if places is None:
                places = open_parts[table] = []
                parts.append((found, places))
            places.append(place)
    if faults:
        if not parts:
            raise next(iter(faults.values()))
        parts.append((PlainRoute("", ""), list(faults)))
    if not parts:
        return Skip(next((reason for reason in reasons if reason != "transaction"), "transaction"))
    if len(parts) == 1:
        return parts[0][0]
    return Apart([(route, _packet(content, places)) for route, places in parts])


def transactions(value: bytes) -> Named:
    """Return where a packet is among its source's transactions. Raises UndecodableRecord."""
    entries = [read_entry(data) for data in read_content(value).entries]
    entries = [entry for entry in entries if entry.entry_type in (_BEGIN, _END, *_ROWS)]
    marks = [entry.entry_type for entry in entries if entry.entry_type in (_BEGIN, _END)]
    begins, ends = (entries[0].header.gtid, entries[-1].header.gtid) if entries else UNKNOWN
    if not marks:
        return begins, ends
    return None if entries[0].entry_type == _BEGIN else begins, None if marks[-1] == _END else ends or SOME


def _table_of(header: Any) -> tuple[str, str]:
    """(database, table) of an entry that names a table. Raises UndecodableRecord."""
    # For some DDL, Canal keeps the backticks around the database's name.
    database = header.schema_name.strip("`")
    if not database:
        raise UndecodableRecord(f"not a Canal packet: table {header.table_name!r} without a database")
    return database, header.table_name


def place_of(entry: Any) -> PlainRoute | Skip:
    """Route or skip an entry. Raises UndecodableRecord."""
    header = entry.header
    event = header.event_type
    reason = _ENTRIES_WITHOUT_ROWS.get(entry.entry_type) or _EVENTS_WITHOUT_ROWS.get(event)
    if reason is not None:
        return Skip(reason)
    if entry.entry_type not in _ROWS:
        raise UndecodableRecord(f"not a Canal packet: an entry of type {entry.entry_type}")
    if event in ROW_EVENTS and header.table_name:
        return PlainRoute(*_table_of(header))
    change = row_change(entry)
    if event == _QUERY and header.table_name and not change.is_ddl:
        return Skip("query")  # a statement whose rows have their own entries
    if header.table_name:
        return PlainRoute(*_table_of(header), change.is_ddl)
    if change.row_datas:
        raise UndecodableRecord("not a Canal packet: rows without a table")
    if event in ROW_EVENTS:
        refuse_sql("Canal packet", change.sql)
    return statement_place(change.sql, change.ran_in) if change.is_ddl else Skip("transaction")


def _packet(content: Content, places: Sequence[int]) -> bytes:
    """A packet with only these entries. Its changes keep their index in the whole packet."""
    body = Messages(
        messages=[content.entries[place] for place in places],
        first_index=[content.first_index[place] for place in places],
    )
    data: bytes = Packet(type=_MESSAGES, body=body.SerializeToString()).SerializeToString()
    return data
