"""Few and large files, and none that no version needs any more."""

from __future__ import annotations

from pyspark.sql import SparkSession

from handlers.spark.delta.evolving import exists
from handlers.spark.table_ref import TableRef

__all__ = ["optimize", "vacuum"]


def optimize(session: SparkSession, ref: TableRef, min_files: int) -> None:
    """Rewrite small files as larger ones, where the table has `min_files` or more."""
    if not exists(session, ref):
        return
    [detail] = session.sql(f"DESCRIBE DETAIL {ref.sql}").collect()
    if detail.numFiles >= min_files:
        session.sql(f"OPTIMIZE {ref.sql}").collect()


def vacuum(session: SparkSession, ref: TableRef, retention: float) -> None:
    """Remove files that no version of the last `retention` seconds needs."""
    if exists(session, ref):
        session.sql(f"VACUUM {ref.sql} RETAIN {retention / 3600:g} HOURS").collect()
