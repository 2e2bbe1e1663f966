"""Debezium's schema-change records: DDL on a separate topic, with the tables' definitions after it.

https://debezium.io/documentation/reference/stable/connectors/mysql.html#mysql-schema-change-topic"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from handlers import Change
from worker.formats.debezium.column_types import Column, type_of_column
from worker.formats.debezium.source import Payload, Source, SourceLogPosition, log_position
from worker.formats.images import statement_from
from worker.formats.interface import Milliseconds, Record, kafka_time
from worker.formats.table_history import TableDefinition

_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
_TRUNCATE = re.compile(r"\s*truncate\b", re.IGNORECASE)
_DROP = re.compile(r"\s*drop\s+table\b", re.IGNORECASE)
_OF_LOG = (None, False, "", "false", "incremental")  # `source.snapshot` of records from the log


class _Table(msgspec.Struct, gc=False):
    columns: Sequence[Column]
    key: Sequence[str] | None = msgspec.field(name="primaryKeyColumnNames", default=None)


class _TableChange(msgspec.Struct, gc=False):
    type: str
    """CREATE, ALTER (also for a rename) or DROP."""
    id: str
    r"""`"crm"."contacts"`; with PostgreSQL and others `"database"."schema"."table"`."""
    table: _Table | None = None
    previous_id: str | None = msgspec.field(name="previousId", default=None)


class _Source(Source, gc=False):
    snapshot: str | bool | None = None


class SchemaChange(msgspec.Struct, gc=False):
    """One DDL statement. A statement on several tables is several records with one position."""

    ddl: str
    source: _Source
    database: str | None = msgspec.field(name="databaseName", default=None)
    table_changes: Sequence[_TableChange] | None = msgspec.field(name="tableChanges", default=None)
    ts_ms: Milliseconds | None = None


read_schema_change: Callable[[Payload], SchemaChange] = msgspec.json.Decoder(SchemaChange).decode
"""Raises one of DECODE_ERRORS for another record."""


def ddl_position(source: SourceLogPosition) -> tuple[int, ...]:
    """The statement's position in the log. It sorts before rows of the same position, because a snapshot has
    one position for its statements and its rows."""
    return log_position(source)[:2]


def table_of(change: SchemaChange) -> tuple[str, str] | None:
    """(database, table) that the statement belongs to, or None for a statement about no table.

    A rename belongs to the table with the new name. CREATE INDEX and DROP INDEX name no table."""
    changes = change.table_changes or ()
    named = next((one for one in changes if one.table is not None), changes[0] if changes else None)
    found = None if named is None else _name(named.id)
    if found is not None:
        return found
    # `tableChanges` names no table. `source.table` joins the names by commas, with the new one last.
    table = (change.source.table or "").rpartition(",")[2]
    database = change.source.schema or change.database or change.source.db
    return (database, table) if table and database else None


def drops_again(change: SchemaChange) -> bool:
    """Whether a snapshot wrote this DROP TABLE. The source has the table, and may not send its rows again."""
    return change.source.snapshot not in _OF_LOG and _DROP.match(change.ddl) is not None


def lessons(change: SchemaChange) -> Iterator[tuple[str, str, TableDefinition | None]]:
    """(database, table, definition) of each table that the statement created, changed or dropped."""
    for one in change.table_changes or ():
        previous = _name(one.previous_id or "")
        name = _name(one.id)
        if previous is not None and previous != name:
            yield *previous, None
        if name is None:
            continue
        if one.type == "DROP":
            yield *name, None
        elif one.table is not None:
            types = {column.name: type_of_column(column) for column in one.table.columns}
            yield *name, TableDefinition(types, tuple(one.table.key) if one.table.key else None)


def statement(change: SchemaChange, record: Record) -> list[Change]:
    """The record's change, or no change if the statement is about no table."""
    time_ms = change.source.ts_ms if change.source.ts_ms is not None else change.ts_ms
    return statement_from(
        change.ddl,
        record,
        truncates=_TRUNCATE.match(change.ddl) is not None,
        time_ms=kafka_time(record) if time_ms is None else time_ms,
        transaction=change.source.gtid,
    )


def _name(text: str) -> tuple[str, str] | None:
    parts: list[Any] = [part.replace('""', '"') for part in _QUOTED.findall(text)]
    return (parts[-2], parts[-1]) if len(parts) > 1 else None
