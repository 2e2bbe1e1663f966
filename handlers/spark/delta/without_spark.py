"""Commits without Spark: delta-rs makes those of replicas that change few files, and of changelogs, in the
worker's process.

A commit of some hundred rows takes more than a second of CPU in Spark, and some hundredths in delta-rs. If a
table is not plain (its columns are mapped or checked), or if many files change, Spark makes the commit."""

from __future__ import annotations

import importlib
import os
import time
import uuid
from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from handlers.logs import get_logger
from handlers.spark.delta.arrow_rows import are_plain, batches_of, fitted, newest_of, within
from handlers.spark.delta.commits.commit_files import held_in_files, note_of_version
from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.delta.commits.exactly_once import (
    MergeConflict,
    check_before,
    known_segment,
    remember_segment,
)
from handlers.spark.delta.few_files import FewFiles, Rewrite, files_of, put_file
from handlers.spark.delta.modes.bringing import Bringing
from handlers.spark.delta.plain_table import (
    can_be_made,
    declining,
    has_features_for,
    make_table,
    no_upkeep,
    plain_table,
)
from handlers.spark.delta.upkeep_without_spark import optimized, vacuumed
from handlers.spark.log.segment_file import Segment
from handlers.spark.log.stores.interface import Files
from handlers.spark.log.stores.local import LocalFiles, plain_path
from handlers.spark.options import SparkOptions
from handlers.spark.rows.shape import Shape, log_schema
from handlers.spark.table_ref import TableRef

if TYPE_CHECKING:
    import deltalake

_log = get_logger("spark")

_MOST_BYTES = 32 * 2**20
"""The most bytes of segments."""
_MOST_MEMORY = 256 * 2**20
"""The most bytes of rows in memory, of segments and of a table. Repetitive rows are small in a file."""
_MISREAD = frozenset("%\\[]^|")
"""In a folder's name, delta-rs takes % for an escape and \\ for /, and panics at the others."""
_CHECKPOINT_EVERY = 10
"""Number of versions, as in Spark."""
_CLEAN_EVERY = 100


class WithoutSpark:
    """Any thread may call it, but for each table only one thread at a time."""

    def __init__(self, options: SparkOptions, files: Files, *, makes_tables: bool = True) -> None:
        """`makes_tables`: whether Spark creates a table as binlane wants it, without defaults that somebody
        else set."""
        self._mode = options.mode
        self._prefix = options.prefix
        self._files = files
        self.is_on = (
            options.merge.engine == "auto"
            and options.mode in {"replica", "changelog"}
            and options.table is None
            and find_spec("deltalake") is not None
            and isinstance(files, LocalFiles)
        )
        """Whether it makes any commits. If not, all tables need Spark."""
        self._makes = makes_tables and not (options.properties or options.partition_by or options.cluster_by)

    @declining(None)
    def apply(self, what: Bringing) -> Rewrite | None:
        """Merge in one commit. Returns None, with nothing changed, if Spark must do it.

        Raises MergeConflict, LostCommit, and what the store raises."""
        ref, note = what.ref, what.note
        if not self._suits(ref) or not self._suit(what):
            return None
        assert ref.path is not None
        is_new = self._makes and not self._files.exists(f"{ref.path}/_delta_log")
        table = None if is_new else self._table(ref)
        if table is None and not is_new:
            return None
        whose = ("" if table is None else str(table.metadata().id), ref.app_id)
        # Before the look: other threads of this process may commit after it.
        known = max(what.after, known_segment(whose))
        if not self._goes_on(ref, known, note):
            return None
        made = self._rows(table, what)
        if made is None:
            return None
        if table is None:
            [rows] = made.written
            whose = make_table(self._files, ref, rows, note, mode=self._mode), ref.app_id
        elif not self._commit(table, ref, made, note):
            return None
        remember_segment(whose, note.segment)
        return made

    @declining(False)
    def add_columns(self, ref: TableRef, columns: pa.Schema) -> bool:
        """Add columns to the table. Returns False, with nothing changed, if Spark must do it. Raises
        MergeConflict."""
        table = self._table(ref) if self._suits(ref) and can_be_made(columns) else None
        if table is None or not has_features_for(table, columns):
            return False
        rs = self._delta_rs
        try:
            table.alter.add_columns(
                rs.Schema.from_arrow(columns).fields,
                commit_properties=rs.CommitProperties(max_commit_retries=0),
                post_commithook_properties=no_upkeep(rs),
            )
        except rs.exceptions.CommitFailedError as error:
            raise MergeConflict(f"{ref}: {str(error).splitlines()[0]}") from error
        except (rs.exceptions.DeltaError, OSError):
            return False  # Spark looks at the table again
        _log.info("delta_columns_added", table=str(ref), columns=columns.names)
        return True

    @declining(False)
    def optimize(self, ref: TableRef) -> bool:
        """Rewrite small files as larger ones. Returns False, with nothing changed, if Spark must do it.
        Raises OSError."""
        table = self._table(ref) if self._suits(ref) else None
        return table is not None and optimized(self._delta_rs, table, ref)

    @declining(False)
    def vacuum(self, ref: TableRef, retention: float) -> bool:
        """Remove files that no version of the last `retention` seconds needs. Returns and raises like
        `optimize`."""
        table = self._table(ref) if self._suits(ref) else None
        return table is not None and vacuumed(table, retention)

    def _suits(self, ref: TableRef) -> bool:
        if not self.is_on or ref.path is None:
            return False
        return not _MISREAD & set(os.path.realpath(plain_path(ref.path)))

    def _table(self, ref: TableRef) -> deltalake.DeltaTable | None:
        return plain_table(str(plain_path(ref.path or "")))

    def _goes_on(self, ref: TableRef, known: int, note: CommitNote) -> bool:
        """Whether the table's files show that it contains everything before these segments, and none of them.
        Raises MergeConflict, LostCommit, and what the store raises."""
        assert ref.path is not None
        held = held_in_files(self._files, ref.path, ref.app_id)
        if held is None:
            return False
        check_before(ref, held, known, note.first)
        return True

    def _suit(self, what: Bringing) -> bool:
        if what.is_partial or sum(segment.bytes for segment in what.segments) > _MOST_BYTES:
            return False
        return self._mode == "changelog" or are_plain(what.shape)

    # ---- rows

    def _rows(self, table: deltalake.DeltaTable | None, what: Bringing) -> Rewrite | None:
        """Return the rows to write: a changelog's new rows, or the files of a replica that change. None if
        they are too large or do not fit: Spark may be able to write them."""
        shape = what.shape
        changes = self._changes(what.segments, shape)
        if changes is None:
            return None
        try:
            if table is not None:
                return self._fitting(table, what.ref, changes, shape)
            first = self._first(changes, shape)
            return None if first is None else Rewrite((), [first])
        except (ValueError, TypeError, pa.ArrowNotImplementedError):
            return None
        except (self._delta_rs.exceptions.DeltaError, OSError):
            return None  # Spark reports what is wrong with the table's files

    def _first(self, changes: pa.Table, shape: Shape) -> pa.Table | None:
        """Return the rows of a new table."""
        rows: pa.Table | None = changes
        if self._mode == "replica":
            newest = newest_of(changes, shape.key)
            rows = None if newest is None else self._kept(newest).select(shape.schema.names)
        return rows if rows is not None and rows.num_rows and can_be_made(rows.schema) else None

    def _fitting(
        self, table: deltalake.DeltaTable, ref: TableRef, changes: pa.Table, shape: Shape
    ) -> Rewrite | None:
        """The same for an existing table. Raises ValueError, and what Arrow and delta-rs raise."""
        schema = pa.schema(table.schema().to_arrow())
        names = {name.lower(): name for name in schema.names}
        brought = changes.schema if self._mode == "changelog" else shape.schema
        if names.keys() != {name.lower() for name in brought.names} or len(names) != len(schema.names):
            return None
        if self._mode == "changelog":
            return Rewrite((), [fitted(changes, schema)])
        key = {names[column.lower()]: column for column in shape.key}
        newest, found = newest_of(changes, shape.key), files_of(table, list(key))
        if newest is None or found is None or ref.path is None:
            return None
        is_kept = pc.not_equal(newest.column(f"{self._prefix}op"), "delete")
        few = FewFiles(self._files, ref.path, schema, key, _MOST_MEMORY)
        return few.rewrite(found, newest, is_kept)

    def _kept(self, newest: pa.Table) -> pa.Table:
        """Return the rows that were not deleted."""
        return newest.filter(pc.not_equal(newest.column(f"{self._prefix}op"), "delete"))

    def _changes(self, segments: Sequence[Segment], shape: Shape) -> pa.Table | None:
        """Return the segments' rows, in order. None if they take too much memory."""
        schema = log_schema(shape, mode=self._mode, prefix=self._prefix)
        batches = (batch for segment in segments for batch in batches_of(self._files, segment, schema))
        return within(_MOST_MEMORY, batches, schema)

    # ---- commits

    def _commit(self, table: deltalake.DeltaTable, ref: TableRef, made: Rewrite, note: CommitNote) -> bool:
        """A compare-and-set like `fenced`: delta-rs rejects a commit if any other one was first. Returns
        False if it cannot be written. Spark then reports why."""
        rs = self._delta_rs
        commit = uuid.uuid4().hex
        before = table.version()
        assert ref.path is not None
        now = int(time.time() * 1000)
        actions = [rs.transaction.RemoveAction(each.path, True, now, each.size, {}) for each in made.removed]
        for rows in made.written:
            name, size, told = put_file(self._files, ref.path, rows)
            actions.append(rs.transaction.AddAction(name, size, {}, now, True, told))
        try:
            table.create_write_transaction(
                actions,
                "append",
                table.schema(),
                commit_properties=rs.CommitProperties(
                    custom_metadata={"userMetadata": note.to_json(ref.app_id, commit)},
                    max_commit_retries=0,
                    app_transactions=[rs.Transaction(ref.app_id, note.first, now)],
                ),
                post_commithook_properties=no_upkeep(rs),
            )
        except rs.exceptions.CommitFailedError as error:
            raise MergeConflict(f"{ref}: {str(error).splitlines()[0]}") from error
        except (rs.exceptions.DeltaError, OSError) as error:
            if not self._is_made(ref.path, before + 1, commit):
                _log.warning("commit_without_spark_failed", table=str(ref), error=str(error))
                return False
        # Spark's rename on a local disk may have replaced this commit.
        if not self._is_made(ref.path, before + 1, commit):
            raise MergeConflict(f"{ref}: another writer has written version {before + 1}")
        self._keep_house(table, before + 1)
        return True

    def _is_made(self, path: str, version: int, commit: str) -> bool:
        try:
            found = note_of_version(self._files, path, version)
        except LookupError:
            return False
        return found is not None and found.get("commit") == commit

    def _keep_house(self, table: deltalake.DeltaTable, version: int) -> None:
        """Write a checkpoint, as Spark does after its commits. Without it, each reader reads all commits."""
        if version % _CHECKPOINT_EVERY:
            return
        cleans = table.metadata().configuration.get("delta.enableExpiredLogCleanup", "true") != "false"
        try:
            table.create_checkpoint()
            if cleans and not version % _CLEAN_EVERY:
                table.cleanup_metadata()
        except (self._delta_rs.exceptions.DeltaError, OSError) as error:  # the commit stays valid
            _log.warning("delta_checkpoint_failed", table=table.table_uri, error=str(error))

    @cached_property
    def _delta_rs(self) -> Any:
        """The package deltalake. Its import takes half a second."""
        for name in ("exceptions", "transaction"):
            importlib.import_module(f"deltalake.{name}")
        return importlib.import_module("deltalake")
