"""Segments as a DataFrame."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import left, lit

from handlers.spark.delta.evolving import spark_schema
from handlers.spark.log.segment_file import Segment

__all__ = ["NUMBER", "read"]

NUMBER = "_binlane_segment"
"""The column with the segment's number."""


def read(session: SparkSession, segments: Sequence[Segment], schema: pa.Schema) -> DataFrame:
    """The rows of the segments, which have one schema, with the NUMBER of each."""
    frame = session.read.schema(spark_schema(schema)).parquet(*(segment.path for segment in segments))
    # The source may have a column `_metadata`, too.
    name = frame.metadataColumn("_metadata").getField("file_name")
    return frame.select("*", left(name, lit(20)).cast("bigint").alias(NUMBER))
