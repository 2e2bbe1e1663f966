"""What is brought into a Delta table by one commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.log.segment_file import Segment
from handlers.spark.rows.shape import Shape
from handlers.spark.table_ref import TableRef

__all__ = ["Bringing"]


@dataclass(frozen=True, slots=True)
class Bringing:
    """Consecutive segments of one shape."""

    session: SparkSession
    ref: TableRef
    segments: Sequence[Segment]
    shape: Shape
    note: CommitNote
    after: int = 0
    """The segment up to which the table is known to hold its log."""

    @property
    def is_partial(self) -> bool:
        """Whether some row does not carry all its columns."""
        return any(segment.partial for segment in self.segments)
