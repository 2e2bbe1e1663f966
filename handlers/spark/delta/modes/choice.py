"""Which mode is applied how."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pyspark.sql import SparkSession

from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.delta.modes.changelog import Changelog
from handlers.spark.delta.modes.history import History
from handlers.spark.delta.modes.keyless import KeylessReplica
from handlers.spark.delta.modes.replica import Replica
from handlers.spark.log.segment_file import Segment
from handlers.spark.options import SparkOptions
from handlers.spark.rows.shape import Shape
from handlers.spark.table_ref import TableRef

__all__ = ["Applier", "applier_for"]


class Applier(Protocol):
    """Brings consecutive segments of one shape into their table."""

    def apply(
        self,
        session: SparkSession,
        ref: TableRef,
        segments: Sequence[Segment],
        shape: Shape,
        note: CommitNote,
        *,
        after: int = 0,
    ) -> None:
        """In one commit that says so. `after`, and what it raises: see `fenced`; and what Spark raises."""


def applier_for(options: SparkOptions) -> Applier | None:
    """None: the segments are the table themselves."""
    if options.format == "parquet":
        return None
    if options.mode == "changelog":
        return Changelog(options)
    return History(options) if options.mode == "history" else _AnyReplica(options)


class _AnyReplica:
    """A replica of a table with or without a key."""

    def __init__(self, options: SparkOptions) -> None:
        self._keyed = Replica(options)
        self._keyless = KeylessReplica(options)

    def apply(
        self,
        session: SparkSession,
        ref: TableRef,
        segments: Sequence[Segment],
        shape: Shape,
        note: CommitNote,
        *,
        after: int = 0,
    ) -> None:
        applier: Applier = self._keyed if shape.key else self._keyless
        applier.apply(session, ref, segments, shape, note, after=after)
