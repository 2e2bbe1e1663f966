"""Few and large files, and none that no version needs any more."""

from __future__ import annotations

from pyspark.sql import SparkSession

from handlers.logs import get_logger
from handlers.spark.delta.commits.exactly_once import is_conflict, settings
from handlers.spark.delta.commits.held_segments import exists
from handlers.spark.table_ref import TableRef

_LARGE = 128 * 2**20
"""Bytes: OPTIMIZE has nothing to gain where files are so large on average."""

_log = get_logger("spark")


def optimize(session: SparkSession, ref: TableRef, min_files: int) -> bool:
    """Rewrite small files as larger ones, where the table has `min_files` or more; whether that was done.

    Not when another writer changed the same files meanwhile: then there is another time. Raises what Spark
    raises."""
    if not exists(session, ref):
        return False
    [detail] = session.sql(f"DESCRIBE DETAIL {ref.sql}").collect()
    if detail.numFiles < min_files or detail.sizeInBytes > detail.numFiles * _LARGE:
        return False
    try:
        session.sql(f"OPTIMIZE {ref.sql}").collect()
    except Exception as error:
        if not is_conflict(error):
            raise
        _log.info("delta_optimize_put_off", table=str(ref), files=detail.numFiles)
        return False
    _log.info("delta_optimized", table=str(ref), files=detail.numFiles)
    return True


def vacuum(session: SparkSession, ref: TableRef, retention: float) -> None:
    """Remove files that no version of the last `retention` seconds needs. Raises what Spark raises.

    Delta warns of less than 168 hours: a query, or a commit, that takes longer than that may miss its files.
    Who sets less has decided so."""
    if exists(session, ref):
        with settings(session, {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}):
            session.sql(f"VACUUM {ref.sql} RETAIN {retention / 3600:f} HOURS").collect()
