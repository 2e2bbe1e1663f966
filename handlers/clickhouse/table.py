"""The description of a table of ClickHouse, and its types: docs/handlers/clickhouse.md has a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from handlers.clickhouse.client import identifier
from handlers.clickhouse.codecs import Codec, End, codec_of, end_of
from handlers.mysql.types import DECIMALS, INTEGERS, SYNONYMS, read_type
from handlers.versioned.memory import Memory, UnfitColumn

OWN_COLUMNS: Mapping[str, str] = {
    "_version": "UInt64",
    "_deleted": "UInt8",
    "_partition": "LowCardinality(String)",
    "_source_time_ms": "Int64",
}
"""binlane's columns, in addition to the source's."""
_MOST_DIGITS = 76
_MOMENT = "DateTime64(6, 'UTC')"
_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 32, "int": 32, "bigint": 64}
_INT64 = 1 << 63
_BY_NAME: Mapping[str, str] = {
    "bit": "UInt64",
    "serial": "UInt64",
    "year": "UInt16",
    "float": "Float64",
    "double": "Float64",
    "boolean": "Bool",
    "bool": "Int8",
    "date": "Date32",
    "datetime": _MOMENT,
    "timestamp": _MOMENT,
    "datetimeoffset": _MOMENT,
    "uuid": "UUID",
}


class Table(msgspec.Struct, frozen=True):
    database: str
    table: str
    columns: Mapping[str, str]
    """Columns that can be written, with ClickHouse's types."""
    computed: frozenset[str]
    """Columns (MATERIALIZED, ALIAS) whose values the server computes. The source's values are ignored."""
    key: Sequence[str]
    """The columns of the sorting key."""
    memory: Memory
    expires_by: Sequence[str]
    """Columns by which a TTL may remove a deleted row earlier than its former versions."""

    @property
    def name(self) -> str:
        return f"{self.database}.{self.table}"

    @property
    def sql(self) -> str:
        return identifier(self.database, self.table)

    def codec(self, column: str) -> Codec:
        """Return a column's codec. Raises UnfitColumn."""
        found = codec_of(self.columns[column])
        if found is None:
            raise UnfitColumn(
                f"{self.name}: its column {column} is {self.columns[column]}, a type that binlane does not "
                "write: change its type, or leave the column out with the table's rules"
            )
        return found

    def end(self, column: str) -> End:
        """Return a column's `end_of`. Raises UnfitColumn."""
        return end_of(self.columns[column]) or self.codec(column).end


def column_type(type_text: str | None, value: Any, *, key: bool) -> str | None:
    """Return a column's type; None for a NULL without a type, which waits for its first value."""
    found = _type_of(type_text) if type_text else _of_value(value)
    return found if key or found is None else f"Nullable({found})"


@lru_cache(maxsize=10_000)
def _type_of(type_text: str) -> str:
    """Return the type for a source's type. Types without a counterpart become String."""
    read = read_type(type_text)
    name = "double" if type_text.lower().startswith("double ") else SYNONYMS.get(read.name, read.name)
    if name in INTEGERS:
        return f"{'U' if read.unsigned else ''}Int{_BITS[name]}"
    if name in DECIMALS:
        if not read.sizes or read.sizes[0] > _MOST_DIGITS:
            return "String"
        scale = read.sizes[1] if len(read.sizes) > 1 else 0
        return f"Decimal({max(read.sizes[0], scale)}, {scale})"
    return _BY_NAME.get(name, "String")


def _of_value(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return "Int64" if -_INT64 <= value < _INT64 else "String"
    return next((found for kind, found in _BY_KIND if isinstance(value, kind)), "String")


# The first match counts, because a datetime is also a date.
_BY_KIND = ((bool, "Bool"), (float, "Float64"), (datetime, _MOMENT), (date, "Date32"), (UUID, "UUID"))
