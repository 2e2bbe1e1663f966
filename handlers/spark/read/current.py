"""For notebooks and jobs: tables at this moment, with the changes that binlane has received but not merged
yet.

    from handlers.spark.read.current import current, create_views

    orders = current(spark, "s3a://lake/shop/orders")
    create_views(spark, "s3a://lake")
    spark.sql("SELECT status, count(*) FROM shop_orders GROUP BY status")

Any SparkSession with Delta will do, classic or Connect. Nothing is written."""

from __future__ import annotations

import uuid
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from handlers.spark.delta.arrow_rows import newest_of
from handlers.spark.delta.evolving import spark_schema
from handlers.spark.locations import ICEBERG, LOGS, PENDING
from handlers.spark.log.owner import logs_below
from handlers.spark.log.store_choice import AnySpark, files_for
from handlers.spark.log.stores.interface import Files
from handlers.spark.read.inspection import columns_of, newest_sql, shown_sql
from handlers.spark.read.log_heads import head_of, ref_at
from handlers.spark.read.shared import Shared
from handlers.spark.read.view import NothingToSee
from handlers.spark.table_ref import TableRef, path_safe, quoted

_LOOKS = 5
"""The most attempts to read a log that grows meanwhile."""


def current(spark: SparkSession, table: str, *, log: str | None = None, prefix: str = "_") -> DataFrame:
    """Return a table as of its newest segment.

    `table`: the folder or URI of a table, or its name in a catalog. `log`: its log's folder
    (`.../_binlane/shop/orders`). By default, the log is found above the table. For a catalog's table, it is
    `_binlane/<database>/<table>` in the warehouse. `prefix`: the handler's.

    The frame shows the moment of this call. It is usable until its segments are removed (`merge: {keep: 1m}`
    of the handler). For newer rows, or after that, call again. Raises LookupError if the table does not
    exist, NothingToSee if its rows are visible only after a merge, and what Spark raises."""
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
            sql = shown_sql(files, ref, head, prefix, columns_of(spark, ref))
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
    """Return the frame of `newest_sql`, with the rows of packs after the last segment. Raises like that,
    BrokenLog, and what the store raises."""
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
        newest = newest_of(rows, head.key) if is_replica else None  # keys contain no nulls
        view = f"binlane_shared_{uuid.uuid4().hex}"
        shared = rows if newest is None else newest
        # Otherwise Spark infers timestamp_ltz for a datetime, and the union makes the whole column one.
        session.createDataFrame(shared, spark_schema(shared.schema)).createOrReplaceTempView(view)
        frame = _frame(session, newest_sql(session, files, ref, prefix, shared=view))
        session.catalog.dropTempView(view)
        # Segments were listed when the frame was made. If there is another one, it contains these rows, too.
        end = head_of(files, ref.log_folder)
        if end is not None and end.segment.number == head.segment.number:
            return frame
    return _frame(session, newest_sql(session, files, ref, prefix))


def _frame(session: SparkSession, sql: str) -> DataFrame:
    """Return the query's frame, with the files of this moment."""
    if AnySpark(session).is_classic:
        return session.sql(sql)
    # A Connect client repeats its query at each use, with the segments of then. The server keeps a view's.
    view = f"binlane_current_{uuid.uuid4().hex}"
    session.sql(sql).createTempView(view)
    return session.table(view)
