"""For notebooks and jobs: tables at this moment, with the changes that binlane has received but not merged
yet.

    from handlers.spark.read.current import current, create_views

    orders = current(spark, "s3a://lake/shop/orders")
    create_views(spark, "s3a://lake")
    spark.sql("SELECT status, count(*) FROM shop_orders GROUP BY status")

Any SparkSession with Delta will do, classic or Connect. Nothing is written. binlane's commands and views use
the functions below, for tables that they know."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from handlers.spark.delta.arrow_rows import newest_of
from handlers.spark.delta.commits.held_segments import delta_snapshot, held_by
from handlers.spark.delta.evolving import schema, spark_schema
from handlers.spark.locations import ICEBERG, LOGS, PENDING
from handlers.spark.log.beside import ToldHeld, logs_below, owner_of
from handlers.spark.log.segment_folder import UsedUp
from handlers.spark.log.store_choice import AnySpark, files_for
from handlers.spark.log.stores.interface import Files
from handlers.spark.read.log_heads import Shared, head_of, ref_at, shown_shape
from handlers.spark.read.view import Columns, NothingToSee, view_sql
from handlers.spark.table_ref import TableRef, app_id, path_safe, quoted

_LOOKS = 5
"""The most attempts to read a log, and its table, while a worker changes them."""


def current(spark: SparkSession, table: str, *, log: str | None = None, prefix: str = "_") -> DataFrame:
    """Return a table as of its newest segment.

    `table`: the folder or URI of a table, or its name in a catalog. `log`: its log's folder
    (`.../_binlane/shop/orders`). By default, the log is found above the table. For a catalog's table, it is
    `_binlane/<database>/<table>` in the warehouse. `prefix`: the handler's.

    The frame shows the moment of this call. It is usable until its segments are removed (`merge: {keep: 1m}`
    of the handler). For newer rows, or after that, call again. Raises LookupError if the table does not
    exist, RuntimeError if it changes faster than it can be read, and what Spark raises. Raises NothingToSee
    if its rows are visible only after a merge."""
    if "/" in table:
        path = table.rstrip("/") if ":" in table else str(Path(table).absolute())
        files = files_for(path, AnySpark(spark))
        ref = ref_at(files, path, log)
    else:
        parts = table.split(".")
        folder = log or _log_in_warehouse(spark, parts)
        ref = TableRef(".".join(map(quoted, parts)), None, f"{folder.rstrip('/')}/{PENDING}")
        files = files_for(ref.log_folder, AnySpark(spark))
    return newest_frame(spark, files, ref, prefix)


def create_views(
    spark: SparkSession,
    lake: str,
    *,
    names: str = "{database}_{table}",
    temporary: bool = True,
    prefix: str = "_",
) -> dict[str, str]:
    """Create a view for each table in the folder or URI `lake` that has a log. Returns source table -> view.

    `names`: the views' names, from `database`, `table` and `mode`. `temporary`: for this session, else the
    catalog keeps them for all its users. Each query of a view reads the newest rows. Its columns are those of
    this call, so call again after the source's have changed. A table without visible rows gets no view.
    Raises ValueError at the second view of one name, and what Spark raises."""
    root = lake.rstrip("/") if ":" in lake else str(Path(lake).absolute())
    files = files_for(root, AnySpark(spark))
    kind = "TEMPORARY VIEW" if temporary else "VIEW"
    made: dict[str, str] = {}
    places: dict[str, str] = {}
    for folder, owner in logs_below(files, f"{root}/{LOGS}"):
        if folder.startswith(f"{root}/{LOGS}/{ICEBERG}/"):
            continue
        path = root + folder.removeprefix(f"{root}/{LOGS}").removesuffix(f"/{PENDING}")
        ref = TableRef(f"delta.{quoted(path)}", path, folder)
        head = head_of(files, folder)
        if head is None:
            continue
        try:
            mode, shape = shown_shape(files, ref, head, prefix, is_kept=True)
            sql = view_sql(ref, shape, mode=mode, prefix=prefix, columns=columns_of(spark, ref))
        except NothingToSee:
            continue
        fields = {"database": owner.database, "table": owner.table, "mode": owner.mode}
        name = names.format(**fields)
        if (other := places.setdefault(name.lower(), path)) != path:  # Spark ignores case in names
            raise ValueError(
                f"both {other} and {path} would be shown as {name}: give their views other names, such as "
                "names='{database}_{table}_{mode}', or read each with `current`"
            )
        quoted_name = ".".join(quoted(part.format(**fields)) for part in names.split("."))
        spark.sql(f"CREATE OR REPLACE {kind} {quoted_name} AS\n{sql}")
        made[f"{owner.database}.{owner.table}"] = name
    return made


def _log_in_warehouse(spark: SparkSession, parts: list[str]) -> str:
    warehouse = spark.conf.get("spark.sql.warehouse.dir")
    database, name = ["default", *parts][-2:]
    return f"{warehouse}/{LOGS}/{path_safe(database)}/{path_safe(name)}"


def newest_frame(session: SparkSession, files: Files, ref: TableRef, prefix: str) -> DataFrame:
    """Return the frame of the table as of its newest segment and the packs after it, with one version of the
    Delta table. It stays correct while the segments that it names exist. Raises like `current`, BrokenLog,
    and what the store raises."""
    for _ in range(_LOOKS):
        with suppress(FileNotFoundError):
            if (frame := _look(session, files, ref, prefix)) is not None:
                return frame
    raise RuntimeError(f"{ref} changes faster than it can be read")


def _look(session: SparkSession, files: Files, ref: TableRef, prefix: str) -> DataFrame | None:
    """Return the frame, None if the log has changed so that this version of the table no longer fits it."""
    told, used_up = ToldHeld(files, ref.log_folder), UsedUp(files, ref.log_folder)
    followed, removed = told.look().followed, used_up.last()
    merged = _merged(session, files, ref)  # before the version, which contains at least this
    columns = columns_of(session, ref)
    version = None if columns is None else version_of(session, ref)
    head = head_of(files, ref.log_folder)
    if head is None:
        if columns is None:
            raise LookupError(f"there is neither a table {ref} nor its log in {ref.log_folder}")
        return _frame(session, f"SELECT * FROM {ref.sql} VERSION AS OF {version}")
    mode, shape = shown_shape(files, ref, head, prefix, is_kept=version is None)
    shared = _shared(
        session, Shared(files).rows(ref.log_folder, head), shape.key if mode == "replica" else ()
    )
    view = partial(view_sql, ref, shape, mode=mode, prefix=prefix, columns=columns)
    frame = _frame(session, view(version=version, beyond=merged, shared=shared))
    # Segments were listed when the frame was made.
    if shared is not None:
        session.catalog.dropTempView(shared)
        end = head_of(files, ref.log_folder)
        if end is None or end.segment.number != head.segment.number:
            return None  # another segment contains the rows of packs, too
    is_whole = used_up.last() <= max(removed, merged)
    return frame if is_whole and told.look().followed == followed else None


def _shared(session: SparkSession, rows: pa.Table | None, key: Sequence[str]) -> str | None:
    """Create a view of the rows of packs, the last one of each key. Returns its name, None without rows."""
    if rows is None:
        return None
    newest = newest_of(rows, key) if key else None  # keys contain no nulls
    shared, view = rows if newest is None else newest, f"binlane_shared_{uuid.uuid4().hex}"
    # Otherwise Spark infers timestamp_ltz for a datetime, and the union makes the whole column one.
    session.createDataFrame(shared, spark_schema(shared.schema)).createOrReplaceTempView(view)
    return view


def _frame(session: SparkSession, sql: str) -> DataFrame:
    """Return the query's frame, with the files of this moment."""
    if AnySpark(session).is_classic:
        return session.sql(sql)
    # A Connect client repeats its query at each use, with the segments of then. The server keeps a view's.
    view = f"binlane_current_{uuid.uuid4().hex}"
    session.sql(sql).createTempView(view)
    return session.table(view)


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


def _merged(session: SparkSession, files: Files, ref: TableRef) -> int:
    """Return the last segment of its log that the table contains. 0 if none, or the owner is unknown."""
    try:
        owner = owner_of(files, ref.log_folder)
    except FileNotFoundError:
        return 0
    whose = replace(ref, app_id=app_id(owner.database, owner.table))
    return held_by(session, whose, AnySpark(session).is_classic).last
