"""The columns of a table's rows: their types for handlers, and their readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from worker.formats.debezium.columns.types import type_of_field
from worker.formats.debezium.columns.values import reader_of
from worker.formats.debezium.connect.schema import Field, Head, columns_of
from worker.formats.debezium.connect.times import as_lost, as_told
from worker.formats.debezium.connect.values import Forms, Reader
from worker.formats.debezium.postgres.native import source_type, with_native
from worker.formats.debezium.postgres.types import postgres_type
from worker.formats.debezium.postgres.values import postgres_reader
from worker.formats.interface import UndecodableRecord
from worker.formats.json_values import DECODE_ERRORS
from worker.formats.table_history import TableDefinition

if TYPE_CHECKING:
    from worker.formats.debezium.settings import DebeziumSettings


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
        name: text if is_mysql else _type_text(text) for name, text in known.items()
    }
    for column, field in fields.items():
        if column in known:
            continue
        types[column] = type_of_field(field, is_mysql=is_mysql)
        own = None if is_mysql else source_type(field)
        if own is not None:
            known[column], types[column] = own, _type_text(own)
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


def _type_text(text: str) -> str | None:
    found = postgres_type(text)
    return None if found is None else found.type_text
