"""Commits without Spark: those of replicas that change few files, of changelogs, and of most statements, in
the worker's process.

A commit of some hundred rows takes more than a second of CPU in Spark, and some hundredths here. If a table
is not plain (it is partitioned or checked), or if many files change, Spark makes the commit."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from handlers.logs import get_logger
from handlers.spark.delta.arrow_rows import are_plain, batches_of, fitted, newest_of, within
from handlers.spark.delta.commits.commit_notes import CommitNote, held_in_files
from handlers.spark.delta.commits.exactly_once import (
    MergeConflict,
    check_before,
    known_segment,
    remember_segment,
)
from handlers.spark.delta.evolving import Column, spark_schema
from handlers.spark.delta.few_files import Rewrite, files_of
from handlers.spark.delta.log_actions import OnlySpark
from handlers.spark.delta.log_files import has_commits, snapshot_in_files
from handlers.spark.delta.modes.bringing import Bringing
from handlers.spark.delta.own_commit import MOST_MEMORY, NextVersion, can_be_made, is_plain, new_table
from handlers.spark.delta.table_columns import ColumnChange, arrow_columns
from handlers.spark.delta.upkeep import optimized, vacuumed
from handlers.spark.log.beside import ToldHeld
from handlers.spark.log.segment_file import Segment
from handlers.spark.log.stores.interface import Files, FilesError
from handlers.spark.log.stores.local import holding
from handlers.spark.options import SparkOptions
from handlers.spark.rows.shape import Shape, log_schema
from handlers.spark.table_ref import (
    MADE,
    NAMES_MAPPED,
    TYPES_WIDENED,
    TableRef,
    needs_mapping,
    of_new_table,
    quoted,
)

_log = get_logger("spark")

_MOST_BYTES = 32 * 2**20
"""The most bytes of segments."""
_MOST_FILES = 10_000
"""The most files of a table: all are looked at for each commit."""


class WithoutSpark:
    """Any thread may call it, but for each table only one thread at a time."""

    def __init__(
        self, options: SparkOptions, files: Files, *, makes_tables: bool = True, is_safe: bool = True
    ) -> None:
        """`makes_tables`: whether Spark creates a table as binlane wants it, without defaults that somebody
        else set. `is_safe`: see `commits_are_safe`."""
        self._mode = options.mode
        self._prefix = options.prefix
        self._files = files
        self.is_on = (
            options.merge.engine == "auto"
            and options.mode in {"replica", "changelog"}
            and options.table is None
            and is_safe
        )
        """Whether it makes any commits. If not, all tables need Spark."""
        self._makes = makes_tables and not (options.properties or options.partition_by or options.cluster_by)

    def apply(self, what: Bringing) -> Rewrite | None:
        """Merge in one commit. Returns None, with nothing changed, if Spark must do it.

        Raises MergeConflict, LostCommit, and what the store raises."""
        ref, note = what.ref, what.note
        if not self.is_on or ref.path is None or not self._suit(what):
            return None
        is_new = self._makes and not has_commits(self._files, ref.path)
        table = None if is_new else self._table(ref)
        if table is None and not is_new:
            return None
        whose = ("" if table is None else _id(table), ref.app_id)
        # Before the look: other threads of this process may commit after it.
        known = max(what.after, known_segment(whose))
        if not self._goes_on(ref, table, known, note):
            return None
        made = self._rows(table, what)
        if made is None:
            return None
        remember_segment((self._commit(table, ref, made, note), ref.app_id), note.segment)
        return made

    def next_version(self, ref: TableRef, *, with_removed: bool = False) -> NextVersion | None:
        """Return the version after the table's newest one, to be committed. None if Spark must make it.
        `with_removed`: see `snapshot_in_files`. Raises what the store raises."""
        return self._table(ref, with_removed=with_removed) if self.is_on and ref.path is not None else None

    def evolve(self, ref: TableRef, added: Sequence[Column], wider: Sequence[Column]) -> bool:
        """Add columns to the table, and widen others. Returns False, with nothing changed, if Spark must do
        it. Raises MergeConflict."""
        table = self.next_version(ref)
        if table is None or any(each.path != quoted(each.name) for each in (*added, *wider)):
            return False  # fields of structs

        def change(columns: ColumnChange) -> None:
            if needs_mapping(each.name for each in added):
                columns.set(*NAMES_MAPPED)
            if wider:
                columns.set(*TYPES_WIDENED)
            for each in wider:
                columns.widen(each.name, each.type)
            for each in added:
                columns.add(each.name, each.type)

        if not table.alter("ADD COLUMNS" if added else "CHANGE COLUMN", change):
            return False
        for each in wider:
            _log.info("delta_column_widened", table=str(ref), column=each.name, type=each.type)
        if added:
            _log.info("delta_columns_added", table=str(ref), columns=[each.name for each in added])
        return True

    def create(
        self,
        ref: TableRef,
        columns: Mapping[str, str],
        properties: Mapping[str, str],
        note: str,
        look_again: Callable[[], None] = lambda: None,
    ) -> bool:
        """Create an empty table. `columns`: with their types in Spark's spelling. `note`: the user metadata.
        `look_again`: see Target. Returns False, with nothing changed, if Spark must do it. Raises
        MergeConflict, and what `look_again` raises."""
        if not (self.is_on and self._makes) or ref.path is None:
            return False
        try:
            metadata, protocol = new_table(columns, properties)
            made = arrow_columns(str(ref), metadata)
        except (ValueError, OnlySpark):
            return False  # CREATE TABLE ... LIKE a table of somebody else
        first = NextVersion(holding(self._files, ref.path, make=True), ref.path, None, made)
        look_again()  # later, a DROP takes the held folder
        first.put("CREATE TABLE", {}, note=note, metadata=metadata, protocol=protocol)
        return True

    def optimize(self, ref: TableRef) -> bool:
        """Rewrite small files as larger ones. Returns False, with nothing changed, if Spark must do it.
        Raises OSError."""
        table = self.next_version(ref)
        return table is not None and optimized(table, ref)

    def vacuum(self, ref: TableRef, retention: float) -> bool:
        """Remove files that no version of the last `retention` seconds needs. Returns and raises like
        `optimize`."""
        table = self.next_version(ref, with_removed=True)
        return table is not None and vacuumed(table, retention)

    def _table(self, ref: TableRef, *, with_removed: bool = False) -> NextVersion | None:
        path = ref.path or ""
        files = holding(self._files, path)
        found = snapshot_in_files(files, path, with_stats=True, with_removed=with_removed)
        if found is None or not is_plain(found) or len(found.files) > _MOST_FILES:
            return None
        try:
            return NextVersion(files, path, found, arrow_columns(path, found.metadata))
        except OnlySpark:
            return None

    def _goes_on(self, ref: TableRef, table: NextVersion | None, known: int, note: CommitNote) -> bool:
        """Whether the table's files show that it contains everything before these segments, and none of them.
        Raises MergeConflict, LostCommit, and what the store raises."""
        assert ref.path is not None
        # Of the version that the commit follows: the log may be cleaned meanwhile.
        newest, files = (None, self._files) if table is None else (table.number - 1, table.files)
        held = held_in_files(files, ref.path, ref.app_id, newest)
        if held is None:
            return False
        check_before(ref, held, known, note.first)
        return True

    def _suit(self, what: Bringing) -> bool:
        if what.is_partial or sum(segment.bytes for segment in what.segments) > _MOST_BYTES:
            return False
        return self._mode == "changelog" or not what.shape.key or are_plain(what.shape)

    # ---- rows

    def _rows(self, table: NextVersion | None, what: Bringing) -> Rewrite | None:
        """Return the rows to write: a changelog's new rows, or the files of a replica that change. None if
        they are too large or do not fit: Spark may be able to write them."""
        shape = what.shape
        changes = self._changes(what.segments, shape)
        if changes is None:
            return None
        try:
            if table is not None:
                return self._fitting(table, changes, shape)
            first = self._last_rows(changes, shape)
            is_made = first is not None and first.num_rows and can_be_made(first.schema)
            return Rewrite((), [first]) if is_made else None
        except (ValueError, TypeError, pa.ArrowNotImplementedError):
            return None
        except OSError as error:
            if isinstance(error, FilesError):
                raise
            return None  # Spark reports what is wrong with the table's files

    def _last_rows(self, changes: pa.Table, shape: Shape) -> pa.Table | None:
        """Return the rows that the changes add to a table without any. None if Spark must find them."""
        if self._mode == "changelog":
            return changes
        ops = changes.column(f"{self._prefix}op")
        if not shape.key:
            return None if pc.any(pc.equal(ops, "delete")).as_py() else changes.select(shape.schema.names)
        newest = newest_of(changes, shape.key)
        return None if newest is None else newest.filter(self._are_kept(newest)).select(shape.schema.names)

    def _fitting(self, table: NextVersion, changes: pa.Table, shape: Shape) -> Rewrite | None:
        """The same for an existing table. Raises ValueError, and what Arrow and the store raise."""
        schema = table.columns.named
        names = {name.lower(): name for name in schema.names}
        brought = changes.schema if self._mode == "changelog" else shape.schema
        if names.keys() != {name.lower() for name in brought.names} or len(names) != len(schema.names):
            return None
        if self._mode == "changelog":
            return Rewrite((), [fitted(changes, schema)])
        assert table.base is not None
        key = {names[column.lower()]: column for column in shape.key}
        found, few = files_of(table.base, table.columns, key), table.few_files(key, MOST_MEMORY)
        if found is None:
            return None
        if not key:
            added = self._last_rows(changes, shape)
            return None if added is None else few.added(found, added)
        newest = newest_of(changes, shape.key)
        return None if newest is None else few.rewrite(found, newest, self._are_kept(newest))

    def _are_kept(self, newest: pa.Table) -> pa.ChunkedArray:
        """Return which rows were not deleted."""
        return pc.not_equal(newest.column(f"{self._prefix}op"), "delete")

    def _changes(self, segments: Sequence[Segment], shape: Shape) -> pa.Table | None:
        """Return the segments' rows, in order. None if they take too much memory."""
        schema = log_schema(shape, mode=self._mode, prefix=self._prefix)
        batches = (batch for segment in segments for batch in batches_of(self._files, segment, schema))
        return within(MOST_MEMORY, batches, schema)

    # ---- commits

    def _commit(self, table: NextVersion | None, ref: TableRef, made: Rewrite, note: CommitNote) -> str:
        """A compare-and-set like `fenced`: no other commit can have this version. Returns Delta's id of the
        table. Raises MergeConflict, and what the store raises."""
        told, txn = note.to_json(ref.app_id, uuid.uuid4().hex), (ref.app_id, note.first)
        if table is not None:
            parameters = {"mode": "Append", "partitionBy": "[]"}
            operation, parameters = ("WRITE", parameters) if self._mode == "changelog" else ("MERGE", {})
            table.put(operation, parameters, note=told, txn=txn, rows=made)
            return _id(table)
        [rows] = made.written
        files = holding(self._files, ref.path or "", make=True)
        if ToldHeld(files, ref.log_folder).look().left >= note.segment:  # later, a DROP takes the held folder
            raise MergeConflict(f"{ref} was dropped before this commit made it again")
        properties = of_new_table(rows.schema.names, {}) | (MADE if self._mode == "replica" else {})
        columns = {each["name"]: each["type"] for each in spark_schema(rows.schema).jsonValue()["fields"]}
        metadata, protocol = new_table(columns, properties)
        first = NextVersion(files, ref.path or "", None, arrow_columns(str(ref), metadata))
        first.put(
            "CREATE TABLE AS SELECT", {}, note=told, txn=txn, rows=made, metadata=metadata, protocol=protocol
        )
        return metadata.id


def _id(table: NextVersion) -> str:
    return "" if table.base is None else table.base.metadata.id
