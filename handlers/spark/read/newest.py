"""A table as of its newest row, also of those that are in packs: these are read by the driver."""

from __future__ import annotations

import uuid

from pyspark.sql import DataFrame, SparkSession

from handlers.spark.delta.arrow_rows import newest_of
from handlers.spark.log.store_choice import AnySpark
from handlers.spark.log.stores.interface import Files
from handlers.spark.read.inspection import head_of, newest_sql
from handlers.spark.read.shared import Shared
from handlers.spark.table_ref import TableRef

_LOOKS = 5
"""At a log that goes on meanwhile."""


def newest_frame(session: SparkSession, files: Files, ref: TableRef, prefix: str) -> DataFrame:
    """The frame of `newest_sql`, with what is behind the last segment in packs. Raises as that, BrokenLog,
    and what the store raises."""
    for _ in range(_LOOKS):
        head = head_of(files, ref.log_folder)
        if head is None or head.stream is None:
            break
        try:
            rows = Shared(files).rows(ref.log_folder, head)
        except FileNotFoundError:
            continue
        if rows is None:
            break
        is_replica = f"{prefix}topic" not in rows.schema.names
        newest = newest_of(rows, head.key) if is_replica else None  # nulls are in no key
        view = f"binlane_shared_{uuid.uuid4().hex}"
        session.createDataFrame(rows if newest is None else newest).createOrReplaceTempView(view)
        frame = session.sql(newest_sql(session, files, ref, prefix, shared=view))
        if AnySpark(session).is_classic:  # a client of Connect looks it up whenever the frame is used
            session.catalog.dropTempView(view)
        # Segments were listed as the frame was made: if there is another one, it has these rows, too.
        end = head_of(files, ref.log_folder)
        if end is not None and end.segment.number == head.segment.number:
            return frame
    return session.sql(newest_sql(session, files, ref, prefix))
