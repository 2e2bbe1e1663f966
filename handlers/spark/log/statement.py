"""A statement of the source in a table's log. It is followed in the log's order, while rows are merged."""

from __future__ import annotations

from typing import Literal

import msgspec
import pyarrow as pa

from handlers.api import Change, Operation

REPLACE: Literal["replace"] = "replace"
"""The operation of an entry that gives a reloaded table its new rows."""


class Statement(msgspec.Struct, frozen=True):
    """DDL, a truncate, or the replacement of a table's rows, with everything that any worker needs to follow
    it."""

    op: Operation | Literal["replace"]
    sql: str | None
    """For `replace`: the place of the table with the new rows, below the folder of all tables."""
    source_time_ms: int
    topic: str
    partition: int
    offset: int
    index: int
    topics: tuple[str, ...]
    """The topic's names in records of finished steps (`Marks.names`)."""
    key_before: tuple[str, ...]
    key: tuple[str, ...]
    """The key columns of later rows."""
    columns: bytes
    """The schema of later segments, as `columns_of` writes it."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of later segments."""
        return pa.ipc.read_schema(pa.py_buffer(self.columns))

    @property
    def change(self) -> Change:
        """The change that arrived. Not for `replace`, which has none."""
        assert self.op != REPLACE
        return Change(
            self.op,
            None,
            None,
            None,
            self.sql,
            self.source_time_ms,
            self.topic,
            self.partition,
            self.offset,
            self.index,
            None,
            None,
        )


def columns_of(schema: pa.Schema) -> bytes:
    """Encode a schema for a statement."""
    return bytes(schema.serialize())
