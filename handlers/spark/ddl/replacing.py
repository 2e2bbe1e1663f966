"""A table's rows replaced by those of another table, in one commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, DataFrameWriter
from pyspark.sql.functions import col, lit

from handlers.api import Rejected
from handlers.spark.ddl.target import Target, find
from handlers.spark.delta.log_files import has_commits
from handlers.spark.table_ref import TableRef, quoted

_WITHOUT_STATISTICS = ("binary", "boolean", "array<string>")
"""Types of columns by which Delta clusters no table."""


def replace_rows(target: Target, ref: TableRef, path: str, step: str) -> None:
    """All rows go, and those of the Delta table at `path` come. Columns that this one lacks are null.

    Raises Rejected where it is not there, or has columns that the table has not; and what Spark raises."""
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
    """Replace all rows of the table by these, in one commit. By that, Delta forgets by what it was clustered:
    the next commit says it again. `columns`: its columns become those of the rows; `told`: what these are."""
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
    """The statement that clusters a table by those of the columns by which Delta can; None: by none."""
    known = {quoted(name): type_ for name, type_ in columns.items()}
    own = [name if name in known else quoted(name) for name in names]  # Delta quotes some
    kept = [name for name in own if known.get(name) not in (None, *_WITHOUT_STATISTICS)]
    return f"ALTER TABLE {ref.sql} CLUSTER BY ({', '.join(kept)})" if kept else None


def overwriting(rows: DataFrame, detail: Any, *, columns: bool = False) -> DataFrameWriter:
    """What writes a table anew, all of it, partitioned as it is (`detail`: Target.detail). `columns`: its
    columns become those of the rows."""
    writer = rows.write.format("delta").mode("overwrite").option("partitionOverwriteMode", "static")
    if columns:
        writer = writer.option("overwriteSchema", "true")
    if detail.partitionColumns:
        writer = writer.partitionBy(*detail.partitionColumns)
    return writer
