"""The description of a table of ClickHouse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from handlers.clickhouse.client import identifier
from handlers.clickhouse.codecs import Codec, codec_of
from handlers.versioned.memory import Memory, UnfitColumn

OWN_COLUMNS: Mapping[str, str] = {
    "_version": "UInt64",
    "_deleted": "UInt8",
    "_partition": "LowCardinality(String)",
    "_source_time_ms": "Int64",
}
"""binlane's columns, in addition to the source's."""


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
