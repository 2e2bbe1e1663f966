"""Reads tables from outside, without changing anything: their logs, and their Delta tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from handlers.spark.delta.commits.held_segments import delta_snapshot, held_by
from handlers.spark.delta.evolving import schema
from handlers.spark.log.last_seen_table import ToldHeld
from handlers.spark.log.owner import owner_of
from handlers.spark.log.segment_file import Head, read_head
from handlers.spark.log.segment_folder import BEHIND
from handlers.spark.log.store_choice import AnySpark
from handlers.spark.log.stores.interface import Files
from handlers.spark.read.view import Columns, NothingToSee, view_sql
from handlers.spark.rows.shape import Mode, Shape, shape_of_log
from handlers.spark.table_ref import TableRef, app_id

_NAME = re.compile(r"(\d{20})\.parquet")
_LOOKS = 5
"""The most attempts to read a log and its table while a worker changes both."""


class End(NamedTuple):
    """The end of a log, including segments after statements."""

    head: Head
    is_alone: bool
    """Whether it is the only segment."""


def head_of(files: Files, folder: str) -> Head | None:
    """Return the last segment that views read, None without one. Raises BrokenLog and what the store
    raises."""
    end = end_of(files, folder, hidden=False)
    return None if end is None else end.head


def end_of(files: Files, folder: str, *, hidden: bool = True) -> End | None:
    """Return the last segment, None without one. `hidden`: see `_found`. Raises like `head_of`."""
    for look in range(1, _LOOKS + 1):
        found = _found(files, folder, hidden=hidden)
        if not found:
            return None
        number = max(found)
        try:
            return End(read_head(files, *found[number]), len(found) == 1)
        except FileNotFoundError:
            if look == _LOOKS:  # the log was removed or recreated since it was listed
                raise
    return None


def log_of(files: Files, folder: str, *, after: int = 0) -> Sequence[Head]:
    """Return all segments after a number, in order, including those that views do not read. The last segment
    is always included, because it contains the marks of the whole table. Costs one small read per segment."""
    heads: list[Head] = []
    found = _found(files, folder, hidden=True)
    for number in sorted(found):
        if number > after or number == max(found):
            try:
                heads.append(read_head(files, *found[number]))
            except FileNotFoundError:
                continue  # merged and removed meanwhile
    return heads


def mode_of(schema: pa.Schema, prefix: str) -> Mode:
    """Return the mode that writes segments with these columns. Raises LookupError if no mode does."""
    names = set(schema.names)
    if f"{prefix}op" in names and f"{prefix}source_time" in names:
        if f"{prefix}sql" in names:
            return "changelog"
        if f"{prefix}absent" in names:
            return "history" if f"{prefix}topic" in names else "replica"
    raise LookupError(f"its segments have no columns of binlane with the prefix {prefix!r}: which prefix?")


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
    mode = mode_of(head.schema, prefix)
    shape: Shape = shape_of_log(head.schema, head.key, mode=mode, prefix=prefix)
    if head.segment.statement is not None:
        after = shape_of_log(*head.segment.after, mode=mode, prefix=prefix)
        if ToldHeld(files, ref.log_folder).look().followed >= head.segment.number:
            shape = _without_gone(ref, shape, after, is_kept=version is None)
    return view_sql(
        *(ref, shape),
        mode=mode,
        prefix=prefix,
        columns=columns,
        version=version,
        beyond=beyond,
        shared=shared,
    )


def _without_gone(ref: TableRef, shape: Shape, after: Shape, *, is_kept: bool) -> Shape:
    """Remove columns that the table no longer has, if its log ends with a followed statement and views read
    nothing after it. `is_kept`: the view is also queried later, when rows with all columns may exist."""
    there = {name.lower() for name in after.schema.names}
    fields = [field for field in shape.schema if field.name.lower() in there]
    if is_kept and len(fields) < len(there):
        raise NothingToSee(
            f"the columns of {ref} have just changed, and no row with them is visible yet: create the view "
            "when the worker has continued"
        )
    return Shape(pa.schema(fields), after.key)


def _merged(session: SparkSession, files: Files, ref: TableRef) -> int:
    """Return the last segment of its log that the table contains. 0 if none, or the owner is unknown."""
    try:
        owner = owner_of(files, ref.log_folder)
    except FileNotFoundError:
        return 0
    whose = replace(ref, app_id=app_id(owner.database, owner.table))
    return held_by(session, whose, AnySpark(session).is_classic).last


def _found(files: Files, folder: str, *, hidden: bool) -> dict[int, tuple[str, int, int]]:
    """Segment number -> path, number and size of its file. `hidden`: include segments that views do not
    read."""
    entries = files.list(folder)
    found = {}
    if hidden and any(entry.name == BEHIND for entry in entries):
        found = _found(files, f"{folder}/{BEHIND}", hidden=False)
    for entry in entries:
        if name := _NAME.fullmatch(entry.name):
            found[int(name[1])] = f"{folder}/{entry.name}", int(name[1]), entry.size
    return found
