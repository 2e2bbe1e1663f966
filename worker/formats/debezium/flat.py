"""Debezium's flattened records: rows without an envelope, as its transform ExtractNewRecordState makes them.

They keep only those values of the envelope that `add.fields` and `add.headers` add. The names of these fields
and headers begin with `__`:
https://debezium.io/documentation/reference/stable/transformations/event-flattening.html"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from handlers.api import Operation
from worker.formats.debezium.settings import DebeziumSettings
from worker.formats.debezium.source import POSTGRESQL, ROWS, Row, Source, refuse_others
from worker.formats.decoding import hint_of
from worker.formats.interface import Record, UndecodableRecord, in_calendar, known_headers
from worker.formats.json_rows import DECODE_ERRORS

_HINT = (
    "a flattened record needs add.fields=op,db,table,source.ts_ms,source.connector (or the same in "
    "add.headers; for PostgreSQL, schema instead of db) and "
    "delete.tombstone.handling.mode=rewrite-with-tombstone"
)
_ADDED = ("table", "db", "schema", "source_ts_ms", "source_table", "source_db", "source_schema", "source_lsn")
_SIGNS = frozenset(("op", *_ADDED))
_CONTEXT = "debezium.context."
_MOST_DIGITS = 20
_REPLACED = re.compile(r"[^A-Za-z0-9._-]")
"""The characters of names that Debezium replaces in topic names."""
_read_any = msgspec.json.Decoder().decode


class FlatRecord(msgspec.Struct, gc=False):
    op: Operation
    row: Row
    """Plain JSON values, without the fields that begin with `__`."""
    source: Source
    by_topic: bool
    """Whether the table or its database is read from the topic's name."""
    transaction: str | None


def names_itself(record: Record, settings: DebeziumSettings) -> bool:
    """Whether the record has headers that the transform adds (`add.headers`)."""
    prefixes = "__", settings.fields_prefix
    names = (name for name, _ in known_headers(record) if name.startswith(prefixes))
    return any(name.removeprefix(prefix) in _SIGNS for name in names for prefix in prefixes)


def flat_record(record: Record, values: Row, settings: DebeziumSettings) -> FlatRecord:
    """Make a FlatRecord from `values`, the record's plain JSON. Raises UndecodableRecord if the record is not
    flattened or does not name its table."""
    prefix = settings.fields_prefix
    row, added = {}, {}
    for name, value in values.items():
        if name.startswith(prefix):
            added[f"__{name.removeprefix(prefix)}"] = value
        elif name.startswith("__"):  # `__deleted` has no other prefix
            added[name] = value
        else:
            row[name] = value
    _refuse_other_prefix(row)
    for name, header in known_headers(record):
        if name.startswith(("__", prefix)) and header is not None:
            added.setdefault(
                name if name.startswith("__") else f"__{name.removeprefix(prefix)}", _header(header)
            )
    if not added:
        raise UndecodableRecord(_unknown(values))
    source = _source(added, record.topic(), settings.source or "")
    refuse_others(source.connector)
    is_postgresql = source.connector == POSTGRESQL
    if not source.table or not (source.schema or (not is_postgresql and source.db)):
        missing = "database" if source.table else "table"
        raise UndecodableRecord(f"the record does not name its {missing}: {_HINT}")
    transaction = _text(added, "transaction_id") or _text(added, "source_gtid", "gtid")
    _refuse_other_database(source, record.topic())
    by_topic = not _text(added, "source_table", "table") or not (
        _text(added, "source_schema", "schema") or (not is_postgresql and _text(added, "source_db", "db"))
    )
    return FlatRecord(_operation(added), row, source, by_topic, transaction)


def _operation(added: Mapping[str, Any]) -> Operation:
    if _text(added, "deleted") == "true" or added.get("__deleted") is True:
        return "delete"
    op = _text(added, "op")
    if op is None:
        return "update"  # an insert or an update; the record does not say which
    try:
        return ROWS[op]
    except KeyError:
        raise UndecodableRecord(f"a flattened record with the operation {op!r}") from None


def _refuse_other_prefix(row: Row) -> None:
    """Raise UndecodableRecord for fields with another prefix, because they would become columns."""
    for name, value in row.items():
        prefix = name.removesuffix("op")
        if (
            isinstance(value, str)
            and value in ROWS
            and prefix not in ("", name)
            and any(prefix + one in row for one in _ADDED)
        ):
            raise UndecodableRecord(
                f"the field {name!r} looks like one that add.fields created with the prefix {prefix!r}: set "
                "debezium.fields_prefix to the transform's add.fields.prefix"
            )


def _refuse_other_database(source: Source, topic: str) -> None:
    """Raise UndecodableRecord if the topic names another database than the record, and that name may be a
    schema. Otherwise tables of two schemas would become one."""
    database, table = (_REPLACED.sub("_", name or "") for name in (source.db, source.table))
    head = topic.removesuffix(f".{table}")
    is_known = source.connector or source.schema or head.endswith(f".{database}")
    if head != topic and "." in head and not is_known:
        raise UndecodableRecord(
            f"the record names the database {source.db!r}, but its topic {topic!r} names another, which may "
            "be a schema: add source.connector to add.fields, or set debezium.source"
        )


def _source(added: Mapping[str, Any], topic: str, known_connector: str) -> Source:
    own = _text(added, "source_name", "name", f"{_CONTEXT}connectorLogicalName")
    prefix, _, rest = topic.partition(".")
    if own is not None and topic.startswith(f"{own}."):
        prefix, rest = own, topic[len(own) + 1 :]
    database, _, table = rest.partition(".")
    if not table:
        prefix = database = table = ""  # another transform named the topic
    elif "." in table and prefix != own and table != _text(added, "source_table", "table"):
        database = table = ""  # the prefix or the table's name has dots
    connector = _text(added, "source_connector", "connector", f"{_CONTEXT}connectorName") or known_connector
    time_ms, schema = _number(added, "source_ts_ms", "ts_ms"), _text(added, "source_schema", "schema")
    if schema is None and connector == POSTGRESQL:
        schema = database or None
    return Source(
        connector=connector,
        name=own or prefix,
        db=_text(added, "source_db", "db") or database,
        schema=schema,
        table=_text(added, "source_table", "table") or table,
        ts_ms=None if time_ms is None else in_calendar(time_ms),
        file=_text(added, "source_file", "file"),
        pos=_number(added, "source_pos", "pos"),
        row=_number(added, "source_row", "row"),
        lsn=_number(added, "source_lsn", "lsn"),
        sequence=_text(added, "source_sequence", "sequence"),
    )


def _text(added: Mapping[str, Any], *names: str) -> str | None:
    for name in names:
        value = added.get(f"__{name}")
        if isinstance(value, str) and value:
            return value
    return None


def _number(added: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = added.get(f"__{name}")
        if isinstance(value, str) and len(value) <= _MOST_DIGITS and value.isascii() and value.isdecimal():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _header(value: bytes) -> Any:
    """Read a header as text, or as JSON if the JsonConverter wrote it."""
    text = value.decode("utf-8", "replace")
    try:
        read = _read_any(value) if text.startswith(('"', "{")) else text
    except DECODE_ERRORS:
        return text
    return read.get("payload", text) if isinstance(read, dict) else read


def _unknown(values: Row) -> str:
    hint = hint_of(values, "debezium")
    if hint is None and ("before" in values or "after" in values):
        return "not a Debezium record: it has before or after, but no `source` and `op`"
    return f"not a Debezium record; {hint or f'if its transform ExtractNewRecordState wrote it, {_HINT}'}"
