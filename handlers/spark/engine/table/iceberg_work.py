"""The operations on one Iceberg table, by PyIceberg: the same as TableWork's, without Spark."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import msgspec
import pyarrow as pa

from handlers.api import Change, Rejected
from handlers.logs import get_logger
from handlers.mysql import ddl
from handlers.mysql.ddl.rules import Reach
from handlers.mysql.statement_of_change import operations_of, shown
from handlers.spark.ddl.follow import DDLResult, Key
from handlers.spark.delta.arrow_rows import batches_of
from handlers.spark.delta.commits.exactly_once import MergeConflict, check_before
from handlers.spark.delta.modes.bringing import Bringing
from handlers.spark.delta.upkeep import LARGE
from handlers.spark.engine.table.following import Following
from handlers.spark.engine.table.foreseen import SeenTable
from handlers.spark.engine.table.work import TableWork
from handlers.spark.engine.table.world import World
from handlers.spark.iceberg.altering import Altering
from handlers.spark.iceberg.catalog import IcebergCatalog
from handlers.spark.iceberg.columns import arrow_schema, lacking, new_partitions, new_schema, unfit
from handlers.spark.iceberg.commits import TableCommit, expire, held_in
from handlers.spark.iceberg.merging import bring
from handlers.spark.log.beside import Held
from handlers.spark.log.segment_file import Segment
from handlers.spark.rows.shape import HISTORY, Shape
from handlers.spark.table_ref import as_texts, find

_FOLLOWED = "binlane.statement"
"""The table property with the places of the last statements that changed the table."""
_MOST_FOLLOWED = 20
_METADATA = "write.metadata.delete-after-commit.enabled"
_log = get_logger("handlers.spark")


class IcebergWork(TableWork):
    """The catalog's side of one table. The caller ensures that one thing is done at a time."""

    def __init__(self, database: str, table: str, world: World) -> None:
        super().__init__(database, table, world)
        self._catalog = cast(IcebergCatalog, world.iceberg)
        self._name = tuple(world.locations.in_catalog(database, table))
        self.following = IcebergFollowing(database, table, self.ref, world)

    def _load(self) -> Any:
        return self._catalog.load(self._name)

    # ---- commits

    def _held(self) -> Held:
        return held_in(self.ref, self._load())

    def apply(self, segments: Sequence[Segment], shape: Shape, *, after: int) -> None:
        what = Bringing(self.ref, segments, shape, self._note(segments), after)
        with self._world.spark.slots.merging(segments[0].written_ms / 1000):
            self._counted(lambda: self._bring(what))

    def _bring(self, what: Bringing) -> None:
        """Merge the segments in one commit, if the table has everything before them and none of them."""
        table, files = self._load(), self._world.files
        check_before(self.ref, held_in(self.ref, table), what.after, what.note.first)
        schema = self.no_rows(what.shape).schema
        batches = [batch for each in what.segments for batch in batches_of(files, each, schema)]
        commit = self._commit(table, what.shape)
        if names := lacking(arrow_schema(commit.schema), self._wanted(what.shape)):
            raise ValueError(f"somebody has changed {', '.join(names)} of the table")  # next, `fit` is called
        bring(commit, pa.Table.from_batches(batches, schema), what, self.options)
        commit.commit()

    def _commit(self, table: Any, shape: Shape | None = None) -> TableCommit:
        """Begin a commit. If `table` is None, it creates the table, and fails if the table exists by then."""
        if table is None and shape is not None:
            schema = new_schema(self._wanted(shape))
            for length in range(1, len(self._name)):
                self._catalog.connected().create_namespace_if_not_exists(self._name[:length])
            table = self._catalog.connected().create_table_transaction(
                self._name,
                schema,
                location=self._catalog.location_of(self._name),
                partition_spec=new_partitions(self.options.partition_by, schema),
                properties={_METADATA: "true"} | as_texts(self.options.properties),
            )
        return TableCommit(self.ref, table)

    def _wanted(self, shape: Shape) -> pa.Schema:
        """Return the columns of a table with rows of this shape."""
        if self.options.mode == "changelog":
            return self.no_rows(shape).schema
        added = HISTORY if self.options.mode == "history" else {}
        named = [pa.field(f"{self.options.prefix}{name}", kind) for name, kind in added.items()]
        return pa.schema([*shape.schema, *named])

    # ---- columns

    def fit(
        self, shape: Shape, look_again: Callable[[], None], *, is_first: bool = False
    ) -> SeenTable | None:
        """The same. Returns None: statements look at the table."""
        with self._world.spark.slots:
            table = self._load()
            look_again()
            if why := self._unfit(table, shape):
                raise Rejected(f"{self.ref} cannot be kept as a {self.options.mode} of the source: {why}")
            if table is not None:
                commit = self._commit(table)
                Altering(commit, self.following.note(0), {}).apply(self._wanted(shape))
                if commit.transaction._updates:
                    commit.commit()
        return None

    def _unfit(self, table: Any, shape: Shape) -> str:
        """Return why the table cannot have rows of this shape, empty if it can."""
        fields, columns = () if table is None else table.schema().fields, self._wanted(shape)
        names = [each.name for each in fields]
        must = [each.name for each in fields if each.required and find(columns.names, each.name) is None]
        added = [each.name for each in columns if each not in shape.schema and find(names, each.name) is None]
        keys = () if self.options.mode == "changelog" else shape.key
        for each in keys:
            if pa.types.is_floating(kind := shape.schema.field(each).type) or pa.types.is_nested(kind):
                return f"{each} of the key is {kind}: Iceberg's readers disagree which are equal"
        if must:
            return f"column {must[0]!r} must not be null, but the source has no such column: make it optional"
        if self.options.mode == "history" and fields and added:
            return f"it has no column {added[0]}, so binlane did not create it: give it another table"
        if table is not None and table.format_version > 2:
            return f"PyIceberg writes versions 1 and 2 of the format, and this is {table.format_version}"
        kind = "parquet" if table is None else table.properties.get("write.format.default", "parquet")
        if kind.lower() != "parquet":
            return f"PyIceberg writes only parquet, and the table's write.format.default is {kind}"
        schema = new_schema(columns) if table is None else table.schema()
        layout = new_partitions(self.options.partition_by, schema) if table is None else table.spec()
        return unfit(schema, layout, columns.names)

    def _columns(self) -> Any:
        table = self._load()
        return pa.schema([]) if table is None else arrow_schema(table.schema())

    def shape(self, key: tuple[str, ...], own: Collection[str]) -> Shape:
        kept = [each for each in self._columns() if each.name.lower() not in own]
        whole = self.shape_of_log(pa.schema(kept), key)
        return Shape(whole.schema, tuple(each for each in key if each in whole.schema.names))

    # ---- upkeep

    def optimize(self, min_files: int) -> None:
        with self._world.spark.slots:
            if (table := self._load()) is None:
                return
            commit = self._commit(table)
            found = [each for each in commit.files() if each.file.file_size_in_bytes < LARGE // 4]
            places = Counter((each.file.spec_id, each.file.partition) for each in found)
            # A partition's only file stays as it is.
            small = [each for each in found if places[each.file.spec_id, each.file.partition] > 1]
            if len(small) >= max(2, min_files):
                commit.replace(small, map(commit.rows, small), self.following.note(0))
                with suppress(MergeConflict):  # the next run tries again
                    commit.commit()
                    _log.info("iceberg_optimized", table=str(self.ref), files=len(small))
            self.vacuum(math.inf)  # so that snapshots stay few

    def vacuum(self, retention: float) -> None:
        if (table := self._load()) is not None:
            expire(table, retention, self._load, self.ref)


class IcebergFollowing(Following):
    """Applies statements of the source to their Iceberg table. A statement is one commit, which records its
    place in a table property: a repeated one finds it there."""

    def _follow(
        self, change: Change, _: Any, key: Key | None, topics: Any, look_again: Callable[[], None]
    ) -> DDLResult:
        own, world, sql, time_ms = self._own, self._world, shown(change.sql), change.source_time_ms
        steps, done = self._steps(operations_of(change, own), sql), tuple[str, ...]()
        places = [[each, change.partition, change.offset, change.index] for each in topics]
        name = tuple(world.locations.in_catalog(*own))
        table = cast(IcebergCatalog, world.iceberg).load(name)
        followed = [] if table is None else msgspec.json.decode(table.properties.get(_FOLLOWED, "[]"))
        if table is not None and not any(each in places for each in followed):
            commit = TableCommit(self._ref, table)
            history = world.options.prefix if world.options.mode == "history" else None
            keeps = history is not None or not world.options.ddl.drop_columns
            Altering(commit, self.note(time_ms), world.overrides, history, time_ms, keeps).apply(steps)
            if commit.transaction._updates:
                look_again()
                kept = [*followed, places[0]][-_MOST_FOLLOWED:]
                commit.commit({_FOLLOWED: msgspec.json.encode(kept).decode()})
                done = tuple(type(one).__name__ for one in steps)
                _log.info("ddl_followed", table=str(own), sql=sql, statements=done)
        for one in steps:
            if isinstance(one, ddl.ChangeKey):
                key = one.columns
            elif isinstance(one, ddl.RenameColumn | ddl.DropColumn) and key is not None:
                new = one.to if isinstance(one, ddl.RenameColumn) else None
                key = tuple(to for each in key if (to := new if find((each,), one.name) else each))
        return DDLResult((own,), done, key)

    def _steps(self, operations: Iterable[ddl.Operation], sql: str) -> Sequence[ddl.Operation]:
        """Return the operations that are followed. Raises Rejected."""
        own, options, around, steps = self._own, self._world.options, self._around(), list[ddl.Operation]()
        reach = Reach(around.handles, lambda name: name.database in around.databases_of(name.table), bool)
        for each in operations:
            is_own = each.table in (own, (ddl.ANY_DATABASE, own.table))
            one = replace(each, table=own) if is_own else each
            ends = is_own and isinstance(one, ddl.DropTable) and options.mode == "history"
            if switch := options.ddl.switch_off(one):
                _log.info("ddl_switched_off", table=str(own), switch=switch, sql=sql)
                steps += [one] if is_own and isinstance(one, ddl.DropColumn) else []  # is noted, and stays
            elif refusal := reach.refusal(one, {own}, options.ddl):
                _log.warning("ddl_refused", table=str(own), because=refusal, sql=sql)
            elif isinstance(one, ddl.LoseRows):
                _log.warning("ddl_rows_not_followed", table=str(own), clause=one.clause)
            elif isinstance(one, ddl.RenameTable | ddl.DropTable) and not ends:
                raise Rejected(
                    f"Iceberg tables are not renamed or dropped here ({sql}): do it in the catalog, and "
                    "switch it off here (ddl: {rename_tables: false, drop_tables: false})"
                )
            elif is_own:  # its first row creates a table
                steps.append(one)
        return steps
