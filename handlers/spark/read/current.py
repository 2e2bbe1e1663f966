"""For notebooks and jobs: tables as they are this moment, with what binlane has received but not merged yet.

    from handlers.spark.read.current import current, create_views

    orders = current(spark, "s3a://lake/shop/orders")
    create_views(spark, "s3a://lake")
    spark.sql("SELECT status, count(*) FROM shop_orders GROUP BY status")

Any SparkSession with Delta will do, classic or Connect; nothing is written."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from handlers.spark.delta.arrow_rows import newest_of
from handlers.spark.locations import LOGS, PENDING
from handlers.spark.log.owner import logs_below
from handlers.spark.log.store_choice import AnySpark, files_for
from handlers.spark.log.stores.interface import Files
from handlers.spark.read.inspection import columns_of, head_of, newest_sql, shown_sql
from handlers.spark.read.shared import Shared
from handlers.spark.read.view import NothingToSee
from handlers.spark.table_ref import TableRef, path_safe, quoted

_LOOKS = 5
"""At a log that goes on meanwhile."""


def current(spark: SparkSession, table: str, *, log: str | None = None, prefix: str = "_") -> DataFrame:
    """A table as of its newest segment.

    `table`: the folder or URI of a table, or its name in a catalog. `log`: its log's folder
    (`.../_binlane/shop/orders`); looked for above the table, or for a catalog's table in the warehouse, as
    `_binlane/<database>/<table>`, when it is not told. `prefix`: the handler's.

    The frame is of the moment of this call, and can be used until the segments of that moment are removed
    (`merge: {keep: 1m}` of the handler); for newer rows, or after that, call again. Raises LookupError when
    there is no such table, NothingToSee when its rows can only be seen once they were merged, and what Spark
    raises."""
    if "/" in table:
        path = table.rstrip("/") if ":" in table else str(Path(table).absolute())
        files = files_for(path, AnySpark(spark))
        found = f"{log.rstrip('/')}/{PENDING}" if log is not None else _log_above(files, path)
        ref = TableRef(f"delta.{quoted(path)}", path, found or f"{path}/{PENDING}")
        if found == path:
            ref = TableRef(f"parquet.{quoted(path)}", path, path)
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
    """A view for each table in the folder or URI `lake` that has a log; source table -> view.

    `names`: the views' names. `temporary`: for this session; else they are kept in the catalog, for everyone
    who reaches both. A view is asked anew each time, so it always shows the newest rows; its columns are
    those of now: call this again after the source's were changed. Tables of which nothing can be seen yet get
    no view. Raises what Spark raises."""
    root = lake.rstrip("/") if ":" in lake else str(Path(lake).absolute())
    files = files_for(root, AnySpark(spark))
    kind = "TEMPORARY VIEW" if temporary else "VIEW"
    made: dict[str, str] = {}
    for folder, owner in logs_below(files, f"{root}/{LOGS}"):
        path = root + folder.removeprefix(f"{root}/{LOGS}").removesuffix(f"/{PENDING}")
        ref = TableRef(f"delta.{quoted(path)}", path, folder)
        head = head_of(files, folder)
        if head is None:
            continue
        try:
            sql = shown_sql(files, ref, head, prefix, columns_of(spark, ref))
        except NothingToSee:
            continue
        name = names.format(database=owner.database, table=owner.table)
        spark.sql(f"CREATE OR REPLACE {kind} {'.'.join(map(quoted, name.split('.')))} AS\n{sql}")
        made[f"{owner.database}.{owner.table}"] = name
    return made


def _log_above(files: Files, path: str) -> str | None:
    """The segments of the table in `path`: its log is in a folder above it, on the same way down."""
    for folder in _above(path):
        log = f"{folder}/{LOGS}{path.removeprefix(folder)}/{PENDING}"
        if files.exists(log):
            return log
    is_log = head_of(files, path) is not None  # mode changelog, format parquet
    return path if is_log else None


def _above(path: str) -> Iterator[str]:
    root = path.find("://") + 3 if "://" in path else 0
    while path.rfind("/") > root:
        path = path.rpartition("/")[0]
        yield path


def _log_in_warehouse(spark: SparkSession, parts: list[str]) -> str:
    warehouse = spark.conf.get("spark.sql.warehouse.dir")
    database, name = ["default", *parts][-2:]
    return f"{warehouse}/{LOGS}/{path_safe(database)}/{path_safe(name)}"


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
