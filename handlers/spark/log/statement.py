"""A statement of the source in a table's log: it is followed in the log's order, as its rows are merged."""

from __future__ import annotations

from typing import Literal

import msgspec
import pyarrow as pa

from handlers.api import Change, Operation

REPLACE: Literal["replace"] = "replace"
"""The operation of an entry by which a table that is loaded again gets its new rows."""


class Statement(msgspec.Struct, frozen=True):
    """DDL or a truncate, or that a table's rows are replaced, with all that is needed to follow it whoever
    put it."""

    op: Operation | Literal["replace"]
    sql: str | None
    """Of `replace`: where the table is that has the new rows, below the folder of all tables."""
    source_time_ms: int
    topic: str
    partition: int
    offset: int
    index: int
    topics: tuple[str, ...]
    """The topic's names in notes of what is done (`Marks.names`)."""
    key_before: tuple[str, ...]
    key: tuple[str, ...]
    """The key columns of the rows behind it."""
    columns: bytes
    """The schema of the segments behind it, as `columns_of` writes it."""

    @property
    def schema(self) -> pa.Schema:
        """Of the segments behind it."""
        return pa.ipc.read_schema(pa.py_buffer(self.columns))

    @property
    def change(self) -> Change:
        """As it came; not of `replace`, which came from no source."""
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
    """A schema as a statement keeps it."""
    return bytes(schema.serialize())
