"""The operations on one Iceberg table, by PyIceberg: the same as TableWork's, without Spark."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pyarrow as pa

from handlers.api import Rejected
from handlers.spark.ddl.target import find
from handlers.spark.delta.arrow_rows import batches_of
from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.delta.commits.exactly_once import check_before, known_segment, remember_segment
from handlers.spark.delta.modes.bringing import Bringing
from handlers.spark.delta.statements import MADE, of_new_table
from handlers.spark.engine.table.foreseen import SeenTable
from handlers.spark.engine.table.iceberg_following import IcebergFollowing
from handlers.spark.engine.table.merge_limits import MergeSize
from handlers.spark.engine.table.work import TableWork
from handlers.spark.engine.table.world import World
from handlers.spark.iceberg.altering import Altering
from handlers.spark.iceberg.catalog import IcebergCatalog, Name
from handlers.spark.iceberg.columns import arrow_schema, new_partitions, new_schema
from handlers.spark.iceberg.commits import TableCommit, held_in
from handlers.spark.iceberg.merging import bring
from handlers.spark.iceberg.upkeep import expire, optimize
from handlers.spark.log.last_seen_table import Held
from handlers.spark.log.segment_file import Segment
from handlers.spark.rows.declared import Declared
from handlers.spark.rows.pieces import RowPiece
from handlers.spark.rows.shape import HISTORY, Shape, log_schema

_MOST_BYTES = 16 * 2**20
"""The most bytes of segments in one commit: their rows are in the worker's memory."""
_NEWEST_WRITTEN = 2
"""The newest version of Iceberg's format that PyIceberg writes."""
_NEW_TABLE = MADE | {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


class IcebergWork(TableWork):
    """The catalog's side of one table. The caller ensures that one thing is done at a time."""

    def __init__(self, database: str, table: str, world: World) -> None:
        super().__init__(database, table, world)
        assert world.iceberg is not None
        self._catalog: IcebergCatalog = world.iceberg
        self._name: Name = tuple(world.locations.in_catalog(database, table))
        self.following = IcebergFollowing(database, table, self.ref, world)

    def _load(self) -> Any:
        return self._catalog.load(self._name)

    def merge_size(self) -> MergeSize:
        most, name = min(self.options.merge.max_bytes, _MOST_BYTES), f"{self.database}.{self.table}"
        return MergeSize(self._world.files, self.ref.log_folder, most, table=name)

    def _look_for_declared(self) -> Declared:
        return Declared()

    def _check(self, piece: RowPiece, declared: Declared, catch_up: Callable[[], None]) -> None:
        self._judging.check_keyless(piece)

    # ---- commits

    def held(self) -> Held:
        return held_in(self.ref, self._load())

    def apply(self, segments: Sequence[Segment], shape: Shape, *, after: int) -> None:
        what = Bringing(self.ref, segments, shape, self._note(segments), after)
        with self._world.spark.slots.merging(segments[0].written_ms / 1000):
            self._counted(lambda: self._bring(what))

    def _bring(self, what: Bringing) -> None:
        """Merge the segments in one commit, if the table has everything before them and none of them."""
        table, options, files = self._load(), self.options, self._world.files
        whose = ("" if table is None else str(table.metadata.table_uuid), self.ref.app_id)
        known = max(what.after, known_segment(whose))
        check_before(self.ref, held_in(self.ref, table), known, what.note.first)
        schema = log_schema(what.shape, mode=options.mode, prefix=options.prefix)
        batches = [batch for each in what.segments for batch in batches_of(files, each, schema)]
        commit = self._commit(self._creating(what.shape) if table is None else table.transaction())
        bring(commit, pa.Table.from_batches(batches, schema), what, options)
        commit.commit()
        remember_segment(
            (str(commit.transaction.table_metadata.table_uuid), self.ref.app_id), what.note.segment
        )
        self.replaced = commit.replaced

    def _creating(self, shape: Shape) -> Any:
        """Begin the table's creation. Returns a transaction, which fails if the table exists by then."""
        schema = new_schema(self._columns(shape))
        self._catalog.make_namespace(self._name)
        return self._catalog.connected().create_table_transaction(
            self._name,
            schema,
            partition_spec=new_partitions(self.options.partition_by, schema),
            properties=_NEW_TABLE | of_new_table((), self.options.properties),
        )

    def _columns(self, shape: Shape) -> pa.Schema:
        """Return the columns of a table with rows of this shape."""
        mode, prefix = self.options.mode, self.options.prefix
        if mode == "changelog":
            return log_schema(shape, mode=mode, prefix=prefix)
        added = HISTORY if mode == "history" else {}
        return pa.schema([*shape.schema, *((prefix + name, kind) for name, kind in added.items())])

    # ---- columns

    def fit(self, shape: Shape, *, is_first: bool = False) -> SeenTable | None:
        floats = [each for each in shape.key if pa.types.is_floating(shape.schema.field(each).type)]
        if floats and self.options.mode != "changelog":
            raise Rejected(f"{floats[0]} of the key is a float: Iceberg's readers disagree which are equal")
        with self._world.spark.slots:
            if (table := self._load()) is None:
                return None
            if (why := self._unfit(table, shape)) is not None:
                raise Rejected(f"{self.ref} cannot be kept as a {self.options.mode} of the source: {why}")
            commit = self._commit(table.transaction())
            Altering(commit, {}, self._plain_note(), self.options.prefix, is_history=False).apply(
                self._columns(shape)
            )
            if commit.is_change:
                commit.commit()
        return None  # statements look at the table

    def _unfit(self, table: Any, shape: Shape) -> str | None:
        """Return why the table cannot have rows of this shape. None if it can."""
        fields, columns = table.schema().fields, self._columns(shape)
        names = [each.name for each in fields]
        must = [each.name for each in fields if each.required and find(columns.names, each.name) is None]
        added = [each.name for each in columns if each not in shape.schema and find(names, each.name) is None]
        if must:
            return f"column {must[0]!r} must not be null, but the source has no such column: make it optional"
        if self.options.mode == "history" and added:
            return (
                f"it has no column {added[0]}, so binlane did not create it: give the handler another table"
            )
        if table.format_version > _NEWEST_WRITTEN:
            return f"PyIceberg writes versions up to {_NEWEST_WRITTEN}, and this is {table.format_version}"
        if len({name.casefold() for name in names}) < len(names):
            return "it has columns whose names differ in case only"
        return None

    def own_columns(self, shape: Shape | None) -> frozenset[str]:
        table = self._load()
        names = () if table is None else [each.name for each in table.schema().fields]
        told = () if shape is None else shape.schema.names
        return frozenset(map(str.lower, names)).difference(map(str.lower, told))

    def shape(self, key: tuple[str, ...], own: Collection[str]) -> Shape:
        if (table := self._load()) is None:
            return Shape(pa.schema([]), ())
        kept = [each for each in arrow_schema(table.schema()) if each.name.lower() not in own]
        whole = self.shape_of_log(pa.schema(kept), key)
        return Shape(whole.schema, tuple(each for each in key if each in whole.schema.names))

    # ---- upkeep

    def optimize(self, min_files: int) -> None:
        with self._world.spark.slots:
            if (table := self._load()) is not None:
                optimize(self._commit(table.transaction()), self._plain_note(), min_files)
                self.vacuum(math.inf)  # so that snapshots stay few

    def vacuum(self, retention: float) -> None:
        if (table := self._load()) is not None:
            expire(table, retention, self._load)

    def _commit(self, transaction: Any) -> TableCommit:
        return TableCommit(self._catalog, self._name, self.ref, transaction)

    def _plain_note(self) -> CommitNote:
        """The note of a commit that merges no segment."""
        return CommitNote(self._world.context.worker, self._world.context.handler, 0, 0, 0, {})
