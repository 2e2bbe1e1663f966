"""The operations on one Iceberg table, by PyIceberg: the same as TableWork's, without Spark."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pyarrow as pa

from handlers.api import Change, Rejected
from handlers.spark.ddl.follow import DDLResult
from handlers.spark.ddl.target import find
from handlers.spark.delta.arrow_rows import batches_of
from handlers.spark.delta.commits.commit_notes import CommitNote, LostCommit
from handlers.spark.delta.commits.exactly_once import MergeConflict, known_segment, lost, remember_segment
from handlers.spark.delta.evolving import IncompatibleColumn
from handlers.spark.engine.table.following import Following
from handlers.spark.engine.table.foreseen import SeenTable
from handlers.spark.engine.table.merge_limits import MergeSize
from handlers.spark.engine.table.work import TableWork
from handlers.spark.engine.table.world import World
from handlers.spark.iceberg.altering import Altering
from handlers.spark.iceberg.catalog import IcebergCatalog, Name
from handlers.spark.iceberg.columns import (
    arrow_schema,
    arrow_type,
    in_table,
    partition_columns,
)
from handlers.spark.iceberg.commits import TableCommit, creating, held_in
from handlers.spark.iceberg.filling import Filling
from handlers.spark.iceberg.modes import bring
from handlers.spark.iceberg.statements import Statements
from handlers.spark.iceberg.upkeep import expire, optimize
from handlers.spark.log.last_seen_table import Held
from handlers.spark.log.segment_file import Segment
from handlers.spark.log.statement import Statement
from handlers.spark.rows.declared import Declared
from handlers.spark.rows.pieces import RowPiece
from handlers.spark.rows.shape import HISTORY, Shape, log_schema
from handlers.spark.rows.transforms import read_transform

_MOST_BYTES = 16 * 2**20
"""The most bytes of segments in one commit: their rows are in the worker's memory."""
_NEWEST_WRITTEN = 2
"""The newest version of Iceberg's format that PyIceberg writes."""


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

    # ---- what the table declares

    def _look_for_declared(self) -> Declared:
        return self._declared_of(self._load())

    def _declared_of(self, table: Any) -> Declared:
        if table is None:
            return Declared()
        fields = table.schema().fields
        types = {each.name.lower(): arrow_type(each.field_type) for each in fields}
        return Declared(
            kinds={name: str(kind) for name, kind in types.items()},
            not_null=frozenset(each.name.lower() for each in fields if each.required),
            integers={name: kind for name, kind in types.items() if pa.types.is_integer(kind)},
        )

    def _check(self, piece: RowPiece, declared: Declared, catch_up: Callable[[], None]) -> None:
        self._judging.check_keyless(piece)

    # ---- commits

    def held(self) -> Held:
        return held_in(self.ref, self._load())

    def apply(self, segments: Sequence[Segment], shape: Shape, *, after: int) -> None:
        note = self._note(segments)
        with self._world.spark.slots.merging(segments[0].written_ms / 1000):
            self._counted(lambda: self._bring(segments, shape, note, after))

    def _bring(self, segments: Sequence[Segment], shape: Shape, note: CommitNote, after: int) -> None:
        """Merge the segments in one commit, if the table has everything before them and none of them."""
        table = self._load()
        whose = ("" if table is None else str(table.metadata.table_uuid), self.ref.app_id)
        known = max(after, known_segment(whose))
        held = held_in(self.ref, table)
        if held.last < known:
            raise LostCommit(lost(self.ref, known, held.last))
        if held.last >= note.first:
            raise MergeConflict(f"{self.ref} already has segment {held.last}: another worker merged it")
        options = self.options
        schema = log_schema(shape, mode=options.mode, prefix=options.prefix)
        changes = pa.Table.from_batches(
            [batch for each in segments for batch in batches_of(self._world.files, each, schema)], schema
        )
        commit = self._commit(self._transaction(table, shape))
        bring(commit, changes, shape, note, mode=options.mode, prefix=options.prefix)
        commit.commit()
        remember_segment((commit.table_id, self.ref.app_id), note.segment)

    def _transaction(self, table: Any, shape: Shape) -> Any:
        if table is not None:
            return table.transaction()
        of = self.options
        return creating(self._catalog, self._name, self._columns(shape), of.partition_by, of.properties)

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
            table = self._widened(self._load(), shape)
        self._declared = self._declared_of(table)
        if table is None:
            fixed = frozenset(read_transform(each).column.casefold() for each in self.options.partition_by)
            return SeenTable(shape, fixed)
        if self.options.mode == "changelog" or self._declared.not_null:
            return None
        there = {each.name.casefold(): each.type for each in arrow_schema(table.schema())}
        if self.options.mode == "history":
            is_it = all(there.get(each.name.casefold()) == in_table(each.type) for each in shape.schema)
        else:
            is_it = there == {each.name.casefold(): in_table(each.type) for each in shape.schema}
        return SeenTable(shape, frozenset(map(str.casefold, partition_columns(table)))) if is_it else None

    def _widened(self, table: Any, shape: Shape) -> Any:
        """Make the table's columns hold rows of this shape. Raises Rejected."""
        if table is None:
            return None
        columns, there = self._columns(shape), arrow_schema(table.schema())
        names = [each.name.casefold() for each in columns]
        lacking = [
            each.name for each in table.schema().fields if each.required and each.name.casefold() not in names
        ]
        unlike = [
            each.name for each in columns if each not in shape.schema and find(there.names, each.name) is None
        ]
        why = None
        if lacking:
            why = (
                f"column {lacking[0]!r} must not be null, but the source has no such column: make it optional"
            )
        elif self.options.mode == "history" and unlike:
            why = (
                f"it has no column {unlike[0]}, so binlane did not create it: give the handler another table"
            )
        elif table.format_version > _NEWEST_WRITTEN:
            why = f"PyIceberg writes versions up to {_NEWEST_WRITTEN}, and this is {table.format_version}"
        elif len({name.casefold() for name in there.names}) < len(there):
            why = "it has columns whose names differ in case only"
        if why is not None:
            raise Rejected(f"{self.ref} cannot be kept as a {self.options.mode} of the source: {why}")
        commit = self._commit(table.transaction())
        filling = Filling(commit, self.options.prefix, is_history=self.options.mode == "history", time_ms=0)
        try:
            if not Altering(commit, {}, self._plain_note(), filling, ()).widen(columns):
                return table
        except (IncompatibleColumn, ValueError) as error:
            raise Rejected(str(error)) from error
        commit.commit()
        return self._load()

    def own_columns(self, shape: Shape | None) -> frozenset[str]:
        table = self._load()
        told = () if shape is None else shape.schema.names
        names = () if table is None else [each.name for each in table.schema().fields]
        return frozenset(map(str.lower, names)).difference(map(str.lower, told))

    def shape(self, key: tuple[str, ...], own: Collection[str]) -> Shape:
        table = self._load()
        if table is None:
            return Shape(pa.schema([]), ())
        kept = [each for each in arrow_schema(table.schema()) if each.name.lower() not in own]
        whole = self.shape_of_log(pa.schema(kept), key)
        return Shape(whole.schema, tuple(each for each in key if each in whole.schema.names))

    # ---- upkeep

    def optimize(self, min_files: int) -> None:
        with self._world.spark.slots:
            if (table := self._load()) is not None:
                optimize(self._commit(table.transaction()), self._plain_note(), min_files)
                self.vacuum(math.inf)

    def vacuum(self, retention: float) -> None:
        if (table := self._load()) is not None:
            expire(table, retention, self._load)

    def _commit(self, transaction: Any) -> TableCommit:
        return TableCommit(self._catalog, self._name, self.ref, transaction)

    def _plain_note(self) -> CommitNote:
        """The note of a commit that merges no segment."""
        return CommitNote(self._world.context.worker, self._world.context.handler, 0, 0, 0, {})


class IcebergFollowing(Following):
    """Applies log entries that are not rows to their Iceberg table."""

    def follow(
        self,
        change: Change,
        key: tuple[str, ...] | None,
        topics: Sequence[str],
        *,
        fence: str = "",
        look_again: Callable[[], None] = lambda: None,
    ) -> DDLResult:
        world = self._world
        assert world.iceberg is not None
        statements = Statements(
            world.iceberg,
            self._around(),
            lambda name: tuple(world.locations.in_catalog(*name)),
            world.options.ddl,
            world.options.mode,
            world.options.prefix,
            self._note(change.source_time_ms),
            look_again,
        )
        return statements.follow(change, self._own, key, topics)

    def _replace(self, statement: Statement, fence: str, look_again: Callable[[], None]) -> None:
        raise Rejected(f"{self._own} is an Iceberg table: it cannot be loaded again this way")
