"""Changelogs: every row of the segments is appended."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.delta.commits.exactly_once import fenced
from handlers.spark.delta.saving import save
from handlers.spark.delta.segments_frame import NUMBER, read
from handlers.spark.log.segment_file import Segment
from handlers.spark.options import SparkOptions
from handlers.spark.rows.added import log_schema
from handlers.spark.rows.shape import Shape
from handlers.spark.table_ref import TableRef

__all__ = ["Changelog"]


class Changelog:
    """Appends segments as they are."""

    def __init__(self, options: SparkOptions) -> None:
        self._options = options

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
        """One commit. The table is made if there is none. Raises what `fenced` and Spark raise."""
        schema = log_schema(shape, mode="changelog", prefix=self._options.prefix)
        rows = read(session, segments, schema).drop(NUMBER)
        with fenced(session, ref, note, after=after):
            save(rows, ref, self._options)
