"""A table's rows replaced by those of another table, in one commit."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, DataFrameWriter
from pyspark.sql.functions import col, lit

from handlers.api import Rejected
from handlers.spark.ddl.target import Target, find
from handlers.spark.delta.log_files import has_commits
from handlers.spark.table_ref import TableRef, quoted

__all__ = ["overwriting", "replace_rows", "save"]


def replace_rows(target: Target, ref: TableRef, path: str, step: str) -> None:
    """All rows go, and those of the Delta table at `path` come. Columns that this one lacks are null.

    Raises Rejected where it is not there, or has columns that the table has not; and what Spark raises.
    """
    if step in target.steps(ref):
        return  # and the other table may be gone
    if not has_commits(target.around.files, path):
        raise Rejected(f"{path}, which has the table's new rows, is not there: put it back")
    columns = target.columns(ref)
    new = target.session.read.format("delta").load(path)
    lost = [name for name in new.columns if find(columns, name) is None]
    if lost:
        raise Rejected(f"{ref} has no column {', '.join(lost)}, as the table's new rows have: add it")
    there = {name: find(new.columns, name) for name in columns}
    rows = new.select(
        *(
            (lit(None) if own is None else col(quoted(own))).cast(type_).alias(name)
            for (name, own), type_ in zip(there.items(), columns.values(), strict=True)
        )
    )

    writer = overwriting(rows, target.detail(ref))
    target.commit(ref, step, lambda: save(writer, ref), told=f"replaced the rows by those of {path}")


def overwriting(rows: DataFrame, detail: Any, *, columns: bool = False) -> DataFrameWriter:
    """What writes a table anew, all of it, partitioned as it is (`detail`: Target.detail). `columns`: its
    columns become those of the rows."""
    writer = rows.write.format("delta").mode("overwrite").option("partitionOverwriteMode", "static")
    if columns:
        writer = writer.option("overwriteSchema", "true")
    if detail.partitionColumns:
        writer = writer.partitionBy(*detail.partitionColumns)
    return writer


def save(writer: DataFrameWriter, ref: TableRef) -> None:
    """Into the table."""
    if ref.path is not None:
        writer.save(ref.path)
    else:
        writer.saveAsTable(ref.sql)
