"""Reads Delta tables from outside, by Spark, without changing anything."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from handlers.spark.delta.commits.held_segments import delta_snapshot, held_by
from handlers.spark.delta.evolving import schema
from handlers.spark.log.owner import owner_of
from handlers.spark.log.segment_file import Head
from handlers.spark.log.store_choice import AnySpark
from handlers.spark.log.stores.interface import Files
from handlers.spark.read.log_heads import head_of, shown_shape
from handlers.spark.read.view import Columns, view_sql
from handlers.spark.table_ref import TableRef, app_id

_LOOKS = 5
"""The most attempts to read a log and its table while a worker changes both."""


def columns_of(session: SparkSession, ref: TableRef) -> Columns | None:
    """Return the Spark table's columns. None if the table does not exist."""
    found = schema(session, ref)
    if found is None:
        return None
    return {each.name: each.dataType.names if isinstance(each.dataType, StructType) else () for each in found}


def version_of(session: SparkSession, ref: TableRef) -> int:
    """Return the Delta table's version. Takes 10 ms in a process with Java, some 200 ms through Connect."""
    snapshot = delta_snapshot(session, ref)
    if snapshot is not None:
        return int(snapshot.version())
    [row] = session.sql(f"DESCRIBE HISTORY {ref.sql} LIMIT 1").collect()
    return int(row["version"])


def newest_sql(
    session: SparkSession, files: Files, ref: TableRef, prefix: str, *, shared: str | None = None
) -> str:
    """Return the query of the table as of its newest segment, for one version of the Delta table. `shared`:
    see `view_sql`.

    So it stays correct while the segments that it names exist. Raises NothingToSee, and LookupError if
    neither table nor log exists."""
    for _ in range(_LOOKS):
        columns = columns_of(session, ref)
        version = None if columns is None else version_of(session, ref)
        merged = 0 if columns is None else _merged(session, files, ref)
        head = head_of(files, ref.log_folder)
        if head is None:
            if columns is None:
                raise LookupError(f"there is neither a table {ref} nor its log in {ref.log_folder}")
            return f"SELECT * FROM {ref.sql} VERSION AS OF {version}"
        sql = shown_sql(files, ref, head, prefix, columns, version=version, beyond=merged, shared=shared)
        # A merge since then may have removed segments that this version does not contain yet.
        if version is None or version_of(session, ref) == version:
            return sql
    return sql


def shown_sql(
    files: Files,
    ref: TableRef,
    head: Head,
    prefix: str,
    columns: Columns | None,
    *,
    version: int | None = None,
    beyond: int = 0,
    shared: str | None = None,
) -> str:
    """Return the `view_sql` of a table whose log, as views read it, ends with `head`. Raises NothingToSee."""
    mode, shape = shown_shape(files, ref, head, prefix, is_kept=version is None)
    return view_sql(
        *(ref, shape),
        mode=mode,
        prefix=prefix,
        columns=columns,
        version=version,
        beyond=beyond,
        shared=shared,
    )


def _merged(session: SparkSession, files: Files, ref: TableRef) -> int:
    """Return the last segment of its log that the table contains. 0 if none, or the owner is unknown."""
    try:
        owner = owner_of(files, ref.log_folder)
    except FileNotFoundError:
        return 0
    whose = replace(ref, app_id=app_id(owner.database, owner.table))
    return held_by(session, whose, AnySpark(session).is_classic).last
