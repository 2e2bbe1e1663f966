"""The segments that one commit merges into a Delta table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import left, lit

from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.delta.evolving import spark_schema
from handlers.spark.log.segment_file import Segment
from handlers.spark.rows.shape import Mode, Shape, log_schema
from handlers.spark.table_ref import TableRef

NUMBER = "_binlane_segment"
"""The column with the segment's number."""


@dataclass(frozen=True, slots=True)
class Bringing:
    """Consecutive segments of one shape."""

    ref: TableRef
    segments: Sequence[Segment]
    shape: Shape
    note: CommitNote
    after: int = 0
    """The last segment that the table is known to contain."""

    @property
    def is_partial(self) -> bool:
        """Whether a row lacks some columns."""
        return any(segment.partial for segment in self.segments)

    def rows(self, session: SparkSession, mode: Mode, prefix: str) -> DataFrame:
        """The segments' rows, each with its segment's NUMBER."""
        schema = spark_schema(log_schema(self.shape, mode=mode, prefix=prefix))
        frame = session.read.schema(schema).parquet(*(segment.path for segment in self.segments))
        # The source may have a column `_metadata`, too.
        name = frame.metadataColumn("_metadata").getField("file_name")
        return frame.select("*", left(name, lit(20)).cast("bigint").alias(NUMBER))
