"""The columns of Debezium's rows: MySQL's types in schema-change records and schemas, and their readers.

Schema-change records are DDL on a separate topic, with the tables' definitions after it:
https://debezium.io/documentation/reference/stable/connectors/mysql.html#mysql-schema-change-topic"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from handlers import Change
from handlers.mysql.types import INTEGERS, SYNONYMS, literal
from worker.formats.debezium.column_values import reader_of
from worker.formats.debezium.connect.schema import (
    DECIMAL,
    SOURCE,
    Field,
    Head,
    columns_of,
    unquoted_list,
)
from worker.formats.debezium.connect.times import as_lost, as_told
from worker.formats.debezium.connect.values import Forms, Reader, bits_of, types_of
from worker.formats.debezium.postgres_columns import postgres_reader, source_type, with_native
from worker.formats.debezium.postgres_types import postgres_type, sized_decimal
from worker.formats.debezium.settings import DebeziumSettings
from worker.formats.debezium.source import Payload, Source, log_position
from worker.formats.images import statement_from
from worker.formats.interface import Milliseconds, Record, UndecodableRecord, kafka_time
from worker.formats.json_rows import DECODE_ERRORS
from worker.formats.table_history import TableDefinition

# Words after the size: INT(10) UNSIGNED.
_ATTRIBUTES = ("unsigned", "signed", "zerofill")
# Other spellings of types -> the spelling used here.
_SPELLINGS = {
    "boolean": "tinyint(1)",
    "bool": "tinyint(1)",
    "character": "char",
    "character varying": "varchar",
    "char varying": "varchar",
    "nchar": "char",
    "nvarchar": "varchar",
    "national char": "char",
    "national character": "char",
    "national varchar": "varchar",
    "national character varying": "varchar",
    "nchar varchar": "varchar",
    "double precision": "double",
    "long varchar": "mediumtext",
    "long": "mediumtext",
    "long varbinary": "mediumblob",
    "char byte": "binary",
    "serial": "bigint unsigned",
}
_SIZED = frozenset(
    (
        *INTEGERS,
        *("char", "varchar", "binary", "varbinary", "bit", "decimal", "float", "double", "vector"),
        *("datetime", "timestamp", "time", "year"),
    )
)


class Column(msgspec.Struct, gc=False):
    """A column of `tableChanges`: io.debezium.relational.history.ConnectTableChangeSerializer."""

    name: str
    type_name: str = msgspec.field(name="typeName", default="")
    type_expression: str | None = msgspec.field(name="typeExpression", default=None)
    length: int | None = None
    scale: int | None = None
    enum_values: Sequence[str] | None = msgspec.field(name="enumValues", default=None)
    """The labels of an enum or a set, each in quotes."""


def _type_text(name: str, length: int | None, scale: int | None, labels: Sequence[str] | None) -> str:
    """`BIGINT UNSIGNED` of length 20 -> `bigint(20) unsigned`."""
    words = name.lower().split()
    end = len(words)
    while end > 1 and words[end - 1] in _ATTRIBUTES:
        end -= 1
    base, attributes = " ".join(words[:end]), "".join(f" {word}" for word in words[end:])
    base = _SPELLINGS.get(base, base)
    if base in ("enum", "set"):
        return f"{base}({','.join(labels)})" if labels else base
    if SYNONYMS.get(base, base) not in _SIZED or length is None or length < 0:
        return base + attributes
    size = f"{length},{scale}" if scale is not None else str(length)
    return f"{base}({size}){attributes}"


# ---- types from the schema of a row


def type_of_field(field: Field, *, is_mysql: bool) -> str | None:
    """The type text of a column, from its schema. None if MySQL has no such type (arrays, intervals).

    With `column.propagate.source.type` or `datatype.propagate.source.type` it is MySQL's own type. Otherwise
    it is the narrowest type for all values of the Connect type."""
    labels = None
    if field.name in ("io.debezium.data.Enum", "io.debezium.data.EnumSet"):
        labels = [literal(label) for label in unquoted_list(field.parameter("allowed") or "")]
    own = field.parameter(f"{SOURCE}type") if is_mysql else None
    if own is not None:
        sizes = (field.parameter(SOURCE + part) or "" for part in ("length", "scale"))
        length, scale = (int(size) if size.isdecimal() else None for size in sizes)
        return _type_text(own, length, scale, labels)
    if labels is not None:
        return f"{'set' if field.name == 'io.debezium.data.EnumSet' else 'enum'}({','.join(labels)})"
    if field.name == DECIMAL:
        return _decimal(field)
    if field.name == "io.debezium.data.Bits":
        length = bits_of(field)
        return f"bit({length})" if length <= 64 else "longblob"
    if field.type == "boolean":
        return "bit(1)" if is_mysql else "boolean"
    return types_of(field).mysql


def _decimal(field: Field) -> str:
    precision, scale = field.parameter("connect.decimal.precision"), field.parameter("scale") or ""
    if not precision or not precision.isdecimal() or not scale.removeprefix("-").isdecimal():
        return "decimal"
    places = int(scale)
    # The connector sends the scale without its sign: see connect/values.py.
    return sized_decimal(int(precision), places - 2048 if places > 1000 else places)


def fields_of(head: Head | None, *, hidden: str | None) -> dict[str, Field]:
    """The columns in the schema. `hidden`: prefix of a flattened record's fields that are not columns.
    Raises UndecodableRecord if the schema is invalid."""
    try:
        fields = {} if head is None else columns_of(head.schema)
    except DECODE_ERRORS as error:
        raise UndecodableRecord(f"no Connect schema: {error}") from None
    if hidden is None:
        return fields
    return {name: field for name, field in fields.items() if not name.startswith((hidden, "__"))}


def readers_of(
    fields: Mapping[str, Field],
    definition: TableDefinition | None,
    configured: Mapping[str, str],
    settings: DebeziumSettings,
    *,
    is_mysql: bool,
    lost: bool,
) -> tuple[Mapping[str, str] | None, dict[str, Reader]]:
    """(type texts, readers) of all columns in the schema, the definition or the configuration.

    `lost`: whether a time that the connector has lost becomes LOST instead of an error."""
    known = {**configured, **definition.types} if definition is not None else dict(configured)
    types: dict[str, str | None] = {
        name: text if is_mysql else _spelled(text) for name, text in known.items()
    }
    for column, field in fields.items():
        if column in known:
            continue
        types[column] = type_of_field(field, is_mysql=is_mysql)
        own = None if is_mysql else source_type(field)
        if own is not None:
            known[column], types[column] = own, _spelled(own)
        if is_mysql and field.parameter("__debezium.source.column.type") is not None:
            known[column] = types[column] or ""
    if not is_mysql:
        types = {name: with_native(text, fields.get(name), known.get(name)) for name, text in types.items()}
    read = reader_of if is_mysql else postgres_reader
    forms = Forms(settings.binary, settings.decimals, as_lost if lost else as_told)
    readers = {
        column: read(fields.get(column), known.get(column), forms)
        for column in (*fields, *(name for name in known if name not in fields))
    }
    return {name: text for name, text in types.items() if text is not None} or None, readers


def _spelled(text: str) -> str | None:
    found = postgres_type(text)
    return None if found is None else found.type_text


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


def ddl_position(source: Source) -> tuple[int, ...]:
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
            types = {
                own.name: _type_text(
                    own.type_expression or own.type_name, own.length, own.scale, own.enum_values
                )
                for own in one.table.columns
            }
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
