"""Rows that a table's conditions refuse."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from handlers.spark.delta.evolving import spark_schema
from handlers.spark.table_ref import quoted

_PLACE = "_binlane_place"


def first_refused(
    session: SparkSession, rows: pa.Table, conditions: Mapping[str, str], prefix: str
) -> tuple[int, str] | None:
    """The first row of a segment that does not meet one of the conditions, and which; None: all do.

    Delta asks it to be true, and not null. Passed over: deleted rows, and those that do not carry all their
    columns; a condition that speaks of a column that no row has. Raises what Spark raises.
    """
    numbered = rows.append_column(_PLACE, pa.array(range(rows.num_rows), pa.int64()))
    frame = session.createDataFrame(numbered, spark_schema(numbered.schema))
    op, absent = prefix + "op", prefix + "absent"
    if op in rows.column_names:
        frame = frame.where(f"{quoted(op)} NOT IN ('delete', 'ddl', 'truncate')")
    if absent in rows.column_names:
        frame = frame.where(f"{quoted(absent)} IS NULL")
    refused = [
        (place, what)
        for what, condition in conditions.items()
        if (place := _first(frame, condition)) is not None
    ]
    return min(refused, default=None)


def _first(frame: DataFrame, condition: str) -> int | None:
    try:
        refused = frame.where(f"NOT coalesce({condition}, false)")
    except AnalysisException:
        return None
    found: int | None = refused.agg({_PLACE: "min"}).collect()[0][0]
    return found
