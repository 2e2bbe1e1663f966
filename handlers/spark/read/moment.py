"""Tables with their waiting changes, without Spark: DuckDB runs the view's query on files and segments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import sqlglot

from handlers.spark.delta.commits.commit_files import held_in_files
from handlers.spark.delta.data_files import OnlySpark, dataset_of, parquet_dataset
from handlers.spark.delta.log_actions import Snapshot
from handlers.spark.delta.log_files import has_commits, snapshot_in_files
from handlers.spark.locations import ICEBERG
from handlers.spark.log.segment_file import Head
from handlers.spark.log.stores.interface import Files
from handlers.spark.read.log_heads import Shared, head_of, log_of, shown_shape
from handlers.spark.read.view import view_sql
from handlers.spark.rows.shape import log_schema
from handlers.spark.table_ref import TableRef, quoted

_LOOKS = 20
"""The most attempts to read a table and its log while a worker changes both."""


class _Changed(Exception):
    """The table or its log has changed while it was read."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A table with its waiting changes, at one moment."""

    sql: str
    """A query of DuckDB on `relations`."""
    relations: Mapping[str, ds.Dataset | pa.Table]


class Source(NamedTuple):
    """A table to read."""

    files: Files
    ref: TableRef
    prefix: str
    """The handler's."""
    with_waiting: bool = True
    """Whether to include changes that are not merged yet."""


@contextmanager
def moment_of(source: Source, name: str) -> Iterator[Moment]:
    """Open a table, as `handlers.spark.read.current.current` shows it. `name`: begins its relations' names.

    The segments are in memory, the table's files are read by queries. Raises LookupError without a table,
    NothingToSee, OnlySpark, BrokenLog, LostCommit, and what the store raises. Raises RuntimeError if the
    table changes faster than it can be read."""
    told = "its log grows"
    for _ in range(_LOOKS):
        with ExitStack() as stack:
            try:
                moment = _look(source, name, stack)
            except (_Changed, FileNotFoundError) as error:
                told = str(error) or told
                continue
            except pa.ArrowException as error:
                raise OnlySpark(str(source.ref), f"has files that Arrow rejects ({error})") from None
            yield moment
            return
    raise RuntimeError(f"{source.ref} changes faster than it can be read, or lacks a file: {told}")


def _look(source: Source, name: str, stack: ExitStack) -> Moment:
    files, ref, prefix, with_waiting = source
    if ref.path is None:
        if f"/{ICEBERG}/" in ref.log_folder:
            raise RuntimeError(f"{ref} is an Iceberg table: its catalog shows it, say in PyIceberg")
        raise OnlySpark(str(ref), "is in a catalog")
    if ref.path == ref.log_folder:
        return _plain_files(files, ref.path, name, stack)
    table = _snapshot(files, ref.path)
    held = None if table is None else held_in_files(files, ref.path, ref.app_id, table.version)
    after = 0 if held is None else held.last
    log = log_of(files, ref.log_folder, after=after, hidden=False) if with_waiting else ()
    relations: dict[str, ds.Dataset | pa.Table] = {}
    sql = quoted(f"{name}_table")
    if table is not None:
        relations[f"{name}_table"], names = dataset_of(files, ref.path, table, stack)
        named = (f"{column} AS {quoted(own)}" for own, column in names.items())
        sql = f"(SELECT {', '.join(named)} FROM {sql})"
    elif not log and not _has_changed(files, ref.path, table):
        raise LookupError(f"there is neither a table {ref} nor its log in {ref.log_folder}")
    if not log:
        sql = f"SELECT * FROM {sql}"
    else:
        mode, shape = shown_shape(files, ref, log[-1], prefix)
        received = f"{name}_received"
        columns = None if table is None else table.metadata.columns
        sql = view_sql(
            replace(ref, sql=sql), shape, mode=mode, prefix=prefix, columns=columns, received=received
        )
        if mode == "changelog" or (mode == "replica" and shape.key):
            schema = log_schema(shape, mode=mode, prefix=prefix)
            relations[received] = _received(
                files, ref.log_folder, log, schema, order=f"{prefix}segment", after=after
            )
    # Segments that this version lacks were there when they were listed, unless a later version has them.
    if _has_changed(files, ref.path, table):
        raise _Changed
    return Moment(sqlglot.transpile(sql, read="spark", write="duckdb")[0], relations)


def _snapshot(files: Files, path: str) -> Snapshot | None:
    if not has_commits(files, path):
        return None
    for _ in range(2):  # Delta may have removed a commit since it was listed
        if (table := snapshot_in_files(files, path)) is not None:
            return table
    raise OnlySpark(path, "has features, checkpoints or a number of files in its Delta log")


def _has_changed(files: Files, path: str, table: Snapshot | None) -> bool:
    if table is None:
        return has_commits(files, path)
    return files.exists(f"{path}/_delta_log/{table.version + 1:020d}.json")


def _received(
    files: Files, folder: str, log: Sequence[Head], schema: pa.Schema, *, order: str, after: int
) -> pa.Table:
    """Return the waiting rows: those of segments after a number, and of packs. The column `order` counts."""
    numbers = [head.segment.number for head in log]
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise _Changed  # a listing is no snapshot
    found = [schema.empty_table()]
    for head in log:
        if head.segment.number > after and head.segment.rows:
            with files.open(head.segment.path) as file:
                found.append(_fitted(pq.read_table(file), schema))
    behind = Shared(files).rows(folder, log[-1])
    if behind is not None:
        found.append(_fitted(behind, schema))
        end = head_of(files, folder)
        if end is None or end.segment.number != numbers[-1]:
            raise _Changed  # some packs may be removed
    rows = pa.concat_tables(found)
    return rows.append_column(order, pa.array(range(len(rows)), pa.int64()))


def _fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return these columns. Those that the rows lack are null."""
    there = {name.lower(): name for name in rows.column_names}
    columns = [
        rows.column(there[field.name.lower()]).cast(field.type)
        if field.name.lower() in there
        else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _plain_files(files: Files, folder: str, name: str, stack: ExitStack) -> Moment:
    """A changelog of Parquet files: its segments are the table."""
    log = log_of(files, folder)
    if not log:
        raise LookupError(f"there is no table in {folder}")
    paths = [head.segment.path for head in log]
    try:
        schema = pa.unify_schemas([head.segment.schema for head in log], promote_options="permissive")
    except pa.ArrowTypeError as error:
        raise RuntimeError(f"the files in {folder} differ in types ({error}): read them one by one") from None
    relation = f"{name}_table"
    dataset = parquet_dataset(files, paths, schema, stack)
    return Moment(f'SELECT * FROM "{relation}"', {relation: dataset})
