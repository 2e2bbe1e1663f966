"""The description of a table of ClickHouse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from handlers.clickhouse.client import identifier
from handlers.clickhouse.codecs import Codec, End, codec_of, end_of
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
                f"{self.name}: its column {column} is {self.columns[column]}, which nothing is written to "
                f"here: give it another type, or leave the column out by the table's rules"
            )
        return found

    def end(self, column: str) -> End:
        """Return a column's `end_of`. Raises UnfitColumn."""
        return end_of(self.columns[column]) or self.codec(column).end
