"""Replaces a table's rows with those of another table, in one commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, DataFrameWriter
from pyspark.sql.functions import col, lit

from handlers.api import Rejected
from handlers.spark.ddl.target import Target, find
from handlers.spark.delta.log_files import has_commits
from handlers.spark.delta.statements import WITHOUT_STATISTICS
from handlers.spark.table_ref import TableRef, quoted


def replace_rows(target: Target, ref: TableRef, path: str, step: str) -> None:
    """Replace all rows with those of the Delta table at `path`. Columns that it lacks become null.

    Raises Rejected if it does not exist or has additional columns, and what Spark raises."""
    write_anew(target, ref, lambda: _rows_of(target, ref, path), step, told=f"rows of {path}")


def _rows_of(target: Target, ref: TableRef, path: str) -> DataFrame:
    if not has_commits(target.around.files, path):
        raise Rejected(f"{path}, which has the table's new rows, is missing: put it back")
    columns = target.columns(ref)
    new = target.session.read.format("delta").load(path)
    lost = [name for name in new.columns if find(columns, name) is None]
    if lost:
        raise Rejected(f"{ref} has no column {', '.join(lost)}, but the table's new rows have it: add it")
    there = {name: find(new.columns, name) for name in columns}
    return new.select(
        *(
            (lit(None) if own is None else col(quoted(own))).cast(type_).alias(name)
            for (name, own), type_ in zip(there.items(), columns.values(), strict=True)
        )
    )


def write_anew(
    target: Target,
    ref: TableRef,
    rows: Callable[[], DataFrame],
    step: str,
    *,
    columns: bool = False,
    told: str,
) -> None:
    """Replace all rows of the table in one commit. This removes Delta's clustering, so the next commit
    restores it. `columns`: also replace the columns. `told`: a description of the rows."""
    if step not in target.steps(ref):
        detail = target.detail(ref)
        writer = overwriting(rows(), detail, columns=columns)
        target.commit(
            ref,
            step,
            lambda: writer.save(ref.path) if ref.path is not None else writer.saveAsTable(ref.sql),
            detail.clusteringColumns or (),
            told=f"overwrite {ref.sql}: {told}",
        )
    again = clustering(ref, target.columns(ref), target.steps(ref).get(step, ()))
    if again:
        target.run(ref, f"{step}.cluster", again)


def clustering(ref: TableRef, columns: Mapping[str, str], names: Sequence[str]) -> str | None:
    """Return the statement that clusters a table by the columns that Delta supports. None if none is left."""
    known = {quoted(name): type_ for name, type_ in columns.items()}
    own = [name if name in known else quoted(name) for name in names]  # Delta quotes some
    kept = [name for name in own if name in known and not known[name].startswith(WITHOUT_STATISTICS)]
    return f"ALTER TABLE {ref.sql} CLUSTER BY ({', '.join(kept)})" if kept else None


def overwriting(rows: DataFrame, detail: Any, *, columns: bool = False) -> DataFrameWriter:
    """Return a writer that overwrites the whole table and keeps its partitioning. `detail`: Target.detail.
    `columns`: the columns become those of the rows."""
    writer = rows.write.format("delta").mode("overwrite").option("partitionOverwriteMode", "static")
    if columns:
        writer = writer.option("overwriteSchema", "true")
    if detail.partitionColumns:
        writer = writer.partitionBy(*detail.partitionColumns)
    return writer
