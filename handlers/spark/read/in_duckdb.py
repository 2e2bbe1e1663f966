"""Tables with their waiting changes, without Spark.

A DuckDB of this process runs the view's query on files and segments."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import sqlglot

from handlers.spark.delta.commits.commit_notes import held_in_files
from handlers.spark.delta.log_actions import OnlySpark, Snapshot, dataset_of, parquet_dataset
from handlers.spark.delta.log_files import has_commits, snapshot_in_files
from handlers.spark.locations import ICEBERG
from handlers.spark.log.beside import owner_of
from handlers.spark.log.segment_file import Head
from handlers.spark.log.store_choice import files_without_java
from handlers.spark.log.stores.interface import Files, scheme_of
from handlers.spark.read.log_heads import Shared, head_of, log_of, ref_at, shown_shape
from handlers.spark.read.view import view_sql
from handlers.spark.rows.shape import log_schema
from handlers.spark.table_ref import TableRef, app_id, quoted

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
    for _ in range(2):  # Delta may have removed a commit since it was listed, or a DROP the table
        if not has_commits(files, path):
            return None
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


_MEMORY = "1GiB"
"""What DuckDB uses before it writes to disk. A worker of the same pod needs the rest. SQL may SET another."""
_CATALOGS = frozenset(("system", "temp"))
"""DuckDB's own."""


def read_at(table: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Read the table in a folder or URI. `columns`: None for all.

    Raises like `moment_of`, and ValueError for a column that does not exist."""
    if not table:
        raise ValueError("no table is named: give its folder or URI")
    path = table.rstrip("/") if scheme_of(table) else str(Path(table).absolute())
    files = files_without_java(path)
    ref, prefix = ref_at(files, path), "_"
    with suppress(FileNotFoundError):
        owner = owner_of(files, ref.log_folder)
        ref, prefix = replace(ref, app_id=app_id(owner.database, owner.table)), owner.prefix or "_"
    return read(Source(files, ref, prefix), columns)


def read(source: Source, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a table. Raises like `read_at`."""
    if columns is not None and (isinstance(columns, str) or not columns):
        raise ValueError(f"columns: give a list of names, not {columns!r}")
    chosen = "*" if columns is None else ", ".join(map(named, columns))
    with opened(source) as made:
        try:
            found = made.sql(f"SELECT {chosen} FROM binlane.t")
        except duckdb.BinderException as error:
            raise ValueError(f"{source.ref}: {str(error).splitlines()[0]}") from None
        return found.to_arrow_table()


@contextmanager
def opened(source: Source) -> Iterator[duckdb.DuckDBPyConnection]:
    """Connect to a DuckDB in which `binlane.t` is the table of this moment. Raises like `moment_of`."""
    with moment_of(source, "t") as moment:
        try:
            with connected({("binlane", "t"): moment}) as made:
                yield made
        except duckdb.Error as error:
            raise RuntimeError(f"{source.ref} cannot be read: {str(error).splitlines()[0]}") from None


def values_of(result: pa.RecordBatchReader) -> Iterator[tuple[Any, ...]]:
    """Yield the rows as Python's values. If a column has times that Python does not have, they are texts."""
    for batch in result:
        yield from zip(*map(_values, batch.columns), strict=True)


def _values(column: pa.Array) -> list[Any]:
    try:
        found: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):
        if pa.types.is_nested(column.type):
            raise
        with duckdb.connect() as made:  # Arrow has no words for infinity
            made.execute("SET TimeZone = 'UTC'").register("rows", pa.table({"c": column}))
            found = [each for (each,) in made.execute("SELECT c::VARCHAR FROM rows").fetchall()]
    return found


def connected(moments: Mapping[tuple[str, str], Moment]) -> duckdb.DuckDBPyConnection:
    """Connect to a DuckDB in which each table (database and name) is a view. Raises LookupError for names
    that DuckDB cannot keep apart."""
    made = duckdb.connect(
        config={
            "python_enable_replacements": "false",
            "memory_limit": _MEMORY,
            "temp_directory": f"{tempfile.gettempdir()}/binlane-{uuid.uuid4().hex}",  # made if it is needed
        }
    )
    made.execute("SET TimeZone = 'UTC'")
    # A catalog of this name would hide a source database `memory`.
    made.execute("ATTACH ':memory:' AS _binlane; USE _binlane; DETACH memory")
    known: dict[tuple[str, str], str] = {}
    for (database, table), moment in moments.items():
        name = f"{database}.{table}"
        if database.casefold() in _CATALOGS:
            raise LookupError(f"a database named {database} cannot be queried: use binlane.read")
        if other := known.get(folded := (database.casefold(), table.casefold())):
            raise LookupError(
                f"{other} and {name} differ only in case, which DuckDB ignores: query one of them, or use "
                "binlane.read"
            )
        known[folded] = name
        for relation, rows in moment.relations.items():
            made.register(relation, rows)
        made.execute(f"CREATE SCHEMA IF NOT EXISTS {named(database)}")
        made.execute(f"CREATE VIEW {named(database)}.{named(table)} AS {moment.sql}")
    return made


def named(name: str) -> str:
    """Return a name as an identifier of DuckDB."""
    return '"' + name.replace('"', '""') + '"'
