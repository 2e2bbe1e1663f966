"""The `json:` section: the layout of records of the format json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema

from handlers.mysql.types import read_type
from handlers.options.faults import nearest
from handlers.options.matching import table_matcher
from handlers.options.shared import Section
from handlers.options.values import TablePattern, not_allowed, text
from worker.formats.own_json.paths import InKey, InValue, read_source
from worker.formats.own_json.rows import TYPE_NAMES, said

JsonOperation = Literal["insert", "update", "delete", "snapshot", "skip"]
TimeUnit = Literal["s", "ms", "us", "ns", "iso8601"]

_DEFAULT_OPERATIONS: dict[str, JsonOperation] = {
    **{"c": "insert", "u": "update", "d": "delete", "r": "snapshot"},
    **{"insert": "insert", "update": "update", "delete": "delete", "snapshot": "snapshot"},
    **{"INSERT": "insert", "UPDATE": "update", "DELETE": "delete"},
}
_ROW = "a path in the value, such as payload.after, or . for the whole value"
_KEY = "a list of column names, or a path to an object or to such a list, such as source.key or $key"
_TYPE = "a column type such as bigint unsigned, decimal(12,2), datetime(6) or json"
_MEANINGS = "a mapping of what the records say to insert, update, delete, snapshot or skip"


def _source(value: str) -> str:
    try:
        read_source(value)
    except ValueError as error:
        raise not_allowed(str(error)) from None
    return value


def _row(value: str) -> str:
    try:
        if isinstance(read_source(value), InValue):
            return value
    except ValueError:
        pass
    raise not_allowed(_ROW)


def _key(value: object) -> str | list[str]:
    if isinstance(value, list) and all(isinstance(name, str) and name for name in value):
        return value
    if isinstance(value, str):
        try:
            if isinstance(read_source(value), InValue | InKey):
                return value
        except ValueError:
            pass
    raise not_allowed(_KEY, f"[{value}]" if isinstance(value, str) and value.isidentifier() else None)


def _type(value: object) -> str:
    name = read_type(value).name if isinstance(value, str) else ""
    if name not in TYPE_NAMES:
        raise not_allowed(_TYPE, nearest(name, TYPE_NAMES))
    return str(value)


def _operations(value: object) -> object:
    if not isinstance(value, Mapping) or not value:
        raise not_allowed(_MEANINGS)
    return {said(key): meaning for key, meaning in value.items()}


_text_schema = WithJsonSchema({"type": "string", "minLength": 1})
_key_schema = WithJsonSchema(
    {"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": {"type": "string"}}]}
)

JsonSource = Annotated[str, PlainValidator(lambda value: text(value, _source)), _text_schema]
JsonRow = Annotated[str, PlainValidator(lambda value: text(value, _row)), _text_schema]
JsonKey = Annotated[str | list[str], PlainValidator(_key), _key_schema]
ColumnTypes = dict[str, Annotated[str, PlainValidator(_type), _text_schema]]
Operations = Annotated[dict[str, JsonOperation], BeforeValidator(_operations)]


class JsonTable(Section):
    """Keys and types for tables that match a pattern."""

    match: TablePattern
    """A glob on database.table (shop.*), or /regular expression/; the whole name must match."""
    key: JsonKey | None = None
    """Key of these tables, instead of the layout's `key`."""
    columns: ColumnTypes = Field(default={})
    """More types, which override those of the layout."""

    def matches(self, table: str) -> bool:
        """Whether the pattern matches `table` ("database.table")."""
        return table_matcher(self.match)(table)


class JsonLayout(Section):
    """The layout of records of the format json; docs/formats.md describes how to write a place."""

    database: JsonSource
    """The database's name: a path, =constant, $topic, $topic.1, $key.name or $header.name."""
    table: JsonSource
    """The table's name, in the same form."""
    operation: JsonSource | None = None
    """The operation, translated by `operations`. Without it, before and after decide: a record with only
    after is an insert."""
    operations: Operations = Field(default=_DEFAULT_OPERATIONS)
    """The records' word for each operation -> insert, update, delete, snapshot, or skip."""
    key: JsonKey | None = None
    """The primary key: a list of column names, or a path to an object of them ($key: the record's key)."""
    before: JsonRow | None = None
    """The row before an update or a delete."""
    after: JsonRow = "."
    """The row after the change; `.` is the whole value."""
    updates: Literal["partial", "whole"] = "partial"
    """Whether `after` of an update may leave columns out, or is always the whole row."""
    exclude: list[str] = Field(default=[])
    """Members of the rows that are not columns."""
    time: JsonSource | None = None
    """The time of the change; without it, Kafka's time of the record."""
    time_unit: TimeUnit = "ms"
    """The unit of `time` since 1970, or iso8601."""
    transaction: JsonSource | None = None
    """The source's transaction."""
    columns: ColumnTypes = Field(default={})
    """Column types, as MySQL names them; values of other columns stay as JSON has them."""
    tables: list[JsonTable] = Field(default=[])
    """Keys and types of some tables; the first match wins."""
