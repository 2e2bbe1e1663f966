"""The operations on one Spark table: commits of segments, changes of columns, DDL."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql.types import StructType

from handlers.api import Batch, Rejected
from handlers.mysql.ddl import TableName
from handlers.options.templates import place_of
from handlers.progress import MadeAnew
from handlers.rows import on_rows
from handlers.spark.delta.commits.commit_notes import CommitNote, brought, held_in_files, read_note
from handlers.spark.delta.commits.exactly_once import MergeConflict, check_own
from handlers.spark.delta.commits.held_segments import held_by
from handlers.spark.delta.evolving import (
    TableState,
    arrow_schema,
    evolve,
    lacking,
    look,
    look_in_files,
    schema,
)
from handlers.spark.delta.log_files import has_commits, snapshot_in_files
from handlers.spark.delta.modes import merge_by_spark
from handlers.spark.delta.modes.bringing import Bringing, check_free
from handlers.spark.delta.upkeep import UpkeepTimes, needs_optimize, optimize, vacuum
from handlers.spark.engine.table.cutting import Cut, cut
from handlers.spark.engine.table.failures import explained
from handlers.spark.engine.table.following import Following
from handlers.spark.engine.table.foreseen import Foreseen, SeenTable
from handlers.spark.engine.table.judging import Judging
from handlers.spark.engine.table.waiting import DDLLock, MergeSize, ddl_lock_of
from handlers.spark.engine.table.world import World
from handlers.spark.log.beside import Held, ToldHeld
from handlers.spark.log.marks import Marks
from handlers.spark.log.segment_file import REPLACE, BrokenLog, Segment, missing, read_head
from handlers.spark.log.segments import SegmentTaken
from handlers.spark.log.stores.local import holding
from handlers.spark.rows.declared import Declared
from handlers.spark.rows.pieces import Piece, RowPiece
from handlers.spark.rows.shape import HISTORY, Shape, log_schema, shape_of_log
from handlers.spark.table_ref import TableRef

_T = TypeVar("_T")
_MOST_BYTES = 16 * 2**20  # of segments in a commit of Iceberg: their rows are in the worker's memory


class TableWork:
    """The Spark side of one table. The caller ensures that one thing is done at a time."""

    def __init__(self, database: str, table: str, world: World) -> None:
        """Raises Rejected for a table whose place is among the logs."""
        self.database = database
        self.table = table
        self.name = f"{database}.{table}"
        self.ref: TableRef = world.locations.ref_to_write(database, table)
        self.options = world.options
        self.known_ids = world.known_ids
        self.packs = world.packs
        self.merges = world.merges
        self.in_background = world.in_background
        self.ddl_lock: DDLLock = ddl_lock_of(world.locations.logs)
        self.told_held = ToldHeld(world.files, self.ref.log_folder)
        self.upkeep_times = UpkeepTimes(world.files, self.ref.log_folder)
        self.following = Following(database, table, self.ref, world)
        self._judging = Judging(self.ref, world)
        self._world = world
        self._declared: Declared | None = None  # as last seen by any thread
        self.replaced = 0
        """Bytes of the files that the last commit replaced, 0 if Spark made it."""

    def declared(self) -> Declared:
        """What the table declares, as last seen. Raises what Spark and the store raise."""
        if self._declared is None:
            self._declared = self._look_for_declared()
        return self._declared

    def _look_for_declared(self) -> Declared:
        if not self.merges or self._world.iceberg is not None:
            return Declared()
        if (gone := self._is_missing()) or (found := look_in_files(self._world.files, self.ref.path)):
            return self._declared_by(None if gone else found)
        with self._world.session() as session:
            return self._declared_by(look(session, self.ref))

    def _declared_by(self, table: TableState | None) -> Declared:
        """`table`: None if the first rows will create it."""
        if table is None:
            return Declared.of(StructType(), self.options.partition_by, {}, self._zone)
        return Declared.of(table.columns, table.partitions, table.properties, self._zone)

    @property
    def _zone(self) -> str:
        return str(self._world.spark.section.conf.get("spark.sql.session.timeZone", "UTC"))

    def forget_declared(self) -> None:
        """Check the declarations again before the next rows: others may change the table."""
        self._declared = None

    def cut(self, batch: Batch, seen: Marks, known: Shape | None, catch_up: Callable[[], None]) -> Cut:
        """Cut and type the changes that `seen` lacks for the log, and check each piece against the
        declarations. `catch_up` merges what is put. A piece raises SegmentTaken if the declarations differ
        after that."""
        declared = self.declared()
        cutting = partial(
            cut,
            shard=batch.shard,
            seen=seen,
            mode=self.options.mode,
            prefix=self.options.prefix,
            overrides=self._world.overrides,
            known=known,
            table=self.name,
            declared=declared,
        )
        found: Cut = on_rows(batch.changes, cutting)
        return replace(found, pieces=self._checked(found, batch, declared, catch_up))

    def _checked(
        self, found: Cut, batch: Batch, declared: Declared, catch_up: Callable[[], None]
    ) -> Iterator[tuple[Piece, Marks]]:
        def where(place: int) -> str:
            return place_of(batch.changes[found.places[place]], self.name)

        if found.fault is not None:
            raise found.fault
        for piece, marks in found.pieces:
            if isinstance(piece, RowPiece):
                self._judging.check(piece, where, declared, catch_up)
                if self.declared() != declared:
                    raise SegmentTaken(self.ref.log_folder)
            yield piece, marks

    def foreseen(self, fixed: Collection[str] | None = ()) -> Foreseen:
        """Return the prediction of statements' results. `fixed`: see Foreseen."""
        options, own = self.options, TableName(self.database, self.table)
        return Foreseen(own, options.ddl, self._world.overrides, options.mode, options.prefix, fixed)

    def is_foreseen(self, segment: Segment, after: Shape) -> bool:
        """Whether a statement still leads to the predicted shape: its kind may be switched off by now."""
        if segment.statement is None or segment.statement.op == REPLACE:
            return True
        before = self.shape_of_log(segment.schema, segment.statement.key_before)
        return self.foreseen().after(segment.statement.change, before) == after

    def no_rows(self, shape: Shape) -> pa.Table:
        """Return a segment's table without rows."""
        return log_schema(shape, mode=self.options.mode, prefix=self.options.prefix).empty_table()

    def shape_of_log(self, found: pa.Schema, key: tuple[str, ...]) -> Shape:
        """Return the shape of rows in segments with these columns."""
        return shape_of_log(found, key, mode=self.options.mode, prefix=self.options.prefix)

    def merge_size(self) -> MergeSize:
        """Return the limit on the bytes of the log that are merged at once."""
        most = self.options.merge.max_bytes
        most = most if self._world.iceberg is None else min(most, _MOST_BYTES)
        return MergeSize(self._world.files, self.ref.log_folder, most, table=self.name)

    # ---- Spark

    def _is_missing(self) -> bool:
        """Whether its place has no table. False for a catalog, which only Spark can ask."""
        return self.ref.path is not None and not has_commits(self._world.files, self.ref.path)

    def held(self) -> Held:
        """The segments of its log that the table contains. Raises BrokenLog if they are another log's. Raises
        what Spark raises."""
        held = self._held()
        check_own(self.ref, held, self._world.files)
        return held

    def _held(self) -> Held:
        if self.ref.path is not None:
            found = held_in_files(self._world.files, self.ref.path, self.ref.app_id)
            if found is not None:
                return found
        with self._world.session() as session:
            return held_by(session, self.ref, self._world.spark.is_classic)

    def apply(self, segments: Sequence[Segment], shape: Shape, *, after: int) -> None:
        """Merge the segments in one commit. `after`: the last segment that the table is known to contain.
        Raises what `fenced` and Spark raise."""
        last = segments[-1].number
        if not self._was_dropped(after, last):
            what = Bringing(self.ref, segments, shape, self._note(segments), after)
            made = self._counted(lambda: self._world.without_spark.apply(what), may_decline=True)
            self.replaced = 0 if made is None else made.size
            if made is None:
                slot = self._world.spark.slots.merging(segments[0].written_ms / 1000)
                with self._world.session() as session, slot:
                    self._counted(lambda: merge_by_spark(session, what, self.options))
            if not self._was_dropped(after, last):
                return
            self._take_back(last)
        raise MergeConflict(f"{self.ref} was dropped before this commit made it again")

    def _was_dropped(self, after: int, last: int) -> bool:
        """Whether another worker has dropped or renamed the table that segments up to `last` make. This
        worker was stopped meanwhile."""
        return not after and self.told_held.look().left >= last

    def _take_back(self, last: int) -> None:
        """Remove the table if a commit up to this segment has made it: another one may be there since."""
        if self.ref.path is None:
            self._take_back_from_catalog(last)
            return
        path, first = self.ref.path, f"_delta_log/{0:020d}"
        files = holding(self._world.files, path)
        found, held = snapshot_in_files(files, path), held_in_files(files, path, self.ref.app_id, 0)
        if found is not None and not found.version and held is not None and held.last == last:
            for name in (f"{first}.json", f"{first}.crc", *map(unquote, found.files)):
                files.delete(f"{path}/{name}")

    def _take_back_from_catalog(self, last: int) -> None:
        with self._world.session() as session:
            [newest] = session.sql(f"DESCRIBE HISTORY {self.ref.sql} LIMIT 1").collect()
            held = brought(read_note(newest.userMetadata), self.ref.app_id)
            if not newest.version and held is not None and held.last == last:
                session.sql(f"DROP TABLE {self.ref.sql}")

    def _counted(self, commit: Callable[[], _T], *, may_decline: bool = False) -> _T:
        """Run a commit and count it as a merge, unless it declines: it returns None then."""
        metrics = self._world.context.metrics
        began = time.monotonic()
        try:
            done = commit()
        except MergeConflict:
            raise  # it is read again at once: neither success nor failure
        except Exception:
            metrics.count("binlane_spark_merges_total", result="failure")
            raise
        if done is not None or not may_decline:
            metrics.count("binlane_spark_merges_total", result="success")
            metrics.observe("binlane_spark_merge_seconds", time.monotonic() - began)
        return done

    def fit(
        self, shape: Shape, look_again: Callable[[], None], *, is_first: bool = False
    ) -> SeenTable | None:
        """Change the table's columns, if the table exists, so that it can have rows of this shape. Returns
        the table as it then is. `look_again` is called after a look at the table. It raises an error if
        another worker may have changed the columns for later rows. `is_first`: nothing of this source table
        was ever put. Raises Rejected."""
        if self._is_missing():
            if is_first and self.ref.path is not None:  # later, a crash in the first commit may leave files
                check_free(self._world.files, self.ref.path)
            self._declared = self._declared_by(None)
            return self._seen(None, shape)
        is_log = self.options.mode == "changelog"
        table = self._evolved(self.no_rows(shape).schema if is_log else shape.schema, look_again)
        self._declared = self._declared_by(table)
        why = self._declared.unfit_for(shape, self.options.mode) or self._unlike(table)
        if why is not None:
            raise Rejected(f"{self.ref} cannot be kept as a {self.options.mode} of the source: {why}")
        return None if is_log else self._seen(table, shape)

    def _evolved(self, wanted: pa.Schema, look_again: Callable[[], None]) -> TableState | None:
        """Give the table the columns and types that it lacks. Returns what it is then."""
        table = look_in_files(self._world.files, self.ref.path)
        if table is not None:
            added, wider = lacking(self.ref, table.columns, wanted)
            if not added and not wider:
                return table
            look_again()
            if self._world.without_spark.evolve(self.ref, added, wider):
                return look_in_files(self._world.files, self.ref.path)
        with self._world.session() as session, self._world.spark.slots:
            look_again()
            evolve(session, self.ref, wanted)
            return look(session, self.ref)

    def _unlike(self, table: TableState | None) -> str | None:
        """Return why an existing table is no history. None if it is one, or need not be."""
        if table is None or self.options.mode != "history":
            return None
        names = {name.lower() for name in table.columns.names}
        lacking = [name for name in HISTORY if f"{self.options.prefix}{name}".lower() not in names]
        if not lacking:
            return None
        column = f"{self.options.prefix}{lacking[0]}"
        return f"it has no column {column}, so binlane did not create it: give the handler another table"

    def _seen(self, table: TableState | None, shape: Shape) -> SeenTable | None:
        of = self.options
        return SeenTable.of(table, shape, mode=of.mode, prefix=of.prefix, partition_by=of.partition_by)

    def own_columns(self, shape: Shape | None) -> frozenset[str]:
        """Lower-case columns of the table that rows of this shape do not have. Empty without a table."""
        found = self._columns()
        told = () if shape is None else shape.schema.names
        there = frozenset(map(str.lower, () if found is None else found.names))
        return there.difference(map(str.lower, told))

    def shape(self, key: tuple[str, ...], own: Collection[str]) -> Shape:
        """Return the table's present shape, without binlane's columns and those of its `own` (lower case),
        which the source does not have. No columns if the table does not exist."""
        found = self._columns()
        if found is None:
            return Shape(pa.schema([]), ())
        arrow = arrow_schema(StructType([each for each in found.fields if each.name.lower() not in own]))
        whole = self.shape_of_log(pa.schema([pa.field(each.name, each.type) for each in arrow]), key)
        there = set(whole.schema.names)
        return Shape(whole.schema, tuple(column for column in key if column in there))

    def _columns(self) -> Any:
        """Return the table's columns, a StructType. None without a table."""
        if (found := look_in_files(self._world.files, self.ref.path)) is not None or self._is_missing():
            return None if found is None else found.columns
        with self._world.session() as session:
            return schema(session, self.ref)

    def optimize(self, min_files: int) -> None:
        if not needs_optimize(self._world.files, self.ref, min_files):
            return
        if self._world.without_spark.optimize(self.ref):
            return
        with self._world.session() as session, self._world.spark.slots:
            optimize(session, self.ref, min_files)

    def vacuum(self, retention: float) -> None:
        if self._is_missing() or self._world.without_spark.vacuum(self.ref, retention):
            return
        with self._world.session() as session, self._world.spark.slots:
            vacuum(session, self.ref, retention)

    # ---- errors and reports

    def tell_passed_over(self, count: int, anew: Sequence[MadeAnew]) -> None:
        """Report for a written batch: `count` changes were applied before, and recreated topics."""
        self._world.passing_over.made_anew(self.name, anew)
        self._world.passing_over.passed_over(self.name, count)

    def explained(self, error: Exception, where: str) -> Exception:
        """Return the error for the code that handles the batch. `where`: its table and offsets."""
        return explained(error, where, self._world.spark)

    def _note(self, segments: Sequence[Segment]) -> CommitNote:
        context, segment = self._world.context, segments[-1]
        try:
            head = read_head(self._world.files, segment.path, segment.number, segment.bytes)
        except FileNotFoundError:
            raise BrokenLog(missing(segment.path)) from None
        return CommitNote(
            context.worker,
            context.handler,
            segments[0].number,
            segment.number,
            segment.last_source_ms or 0,
            head.marks.highest(),
            {topic: each.current for (topic, _), each in head.marks.ids.items() if each.current is not None},
        )
