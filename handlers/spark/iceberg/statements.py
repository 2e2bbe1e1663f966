"""Applies one statement of the source to Iceberg tables.

All changes of one table's columns and rows are one commit, which records the statement in a table property:
a repeated statement finds it there. Columns keep their ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pyarrow as pa

from handlers.api import Change, Rejected
from handlers.logs import get_logger
from handlers.mysql import ddl
from handlers.mysql.ddl.rules import DDLRules, Reach
from handlers.mysql.statement_of_change import operations_of, shown
from handlers.spark.ddl.follow import DDLResult, Key
from handlers.spark.ddl.target import Place, Surroundings
from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.iceberg.altering import Altering, type_of
from handlers.spark.iceberg.catalog import IcebergCatalog, Name
from handlers.spark.iceberg.columns import arrow_schema
from handlers.spark.iceberg.commits import MADE, TableCommit, creating
from handlers.spark.iceberg.filling import Filling
from handlers.spark.rows.shape import HISTORY

_log = get_logger("handlers.spark")
_FOLLOWED = "binlane.statement"
"""The table property with the last statement that changed the table: its place and step."""


@dataclass(slots=True)
class Statements:
    """Follows one statement. Nothing is cached: tables are loaded right before each change."""

    catalog: IcebergCatalog
    around: Surroundings
    name_of: Callable[[ddl.TableName], Name]
    rules: DDLRules
    mode: str
    prefix: str
    note: CommitNote
    look_again: Callable[[], None]
    """Called right before each commit. Raises if another worker has followed the statement."""
    done: list[str] = field(default_factory=list)

    def follow(self, change: Change, own: ddl.TableName, key: Key | None, topics: Sequence[str]) -> DDLResult:
        """Follow the statement, unless an earlier attempt did.

        Raises Rejected, before any change, for what Iceberg cannot do. Raises MergeConflict, and what
        PyIceberg raises."""
        operations = [self._named(one) for one in operations_of(change, own)]
        places = [(each, change.partition, change.offset, change.index) for each in topics or (change.topic,)]
        keys: dict[ddl.TableName, Key] = {} if key is None else {own: key}
        touched: dict[ddl.TableName, None] = {}
        moved: list[tuple[ddl.TableName, ddl.TableName]] = []
        ours, columns = {own}, list[ddl.Operation]()
        for step, one in enumerate([*operations, None]):
            if columns and (one is None or _is_whole(one) or one.table != columns[0].table):
                self._alter(columns, keys, places, step, change.source_time_ms)
                columns = []
            if one is None or self._is_refused(one, ours, change.sql):
                continue
            touched[one.table] = None
            match one:
                case ddl.RenameTable(table=old, to=new):
                    touched[new] = None
                    ours = (ours - {old}) | {new}
                    if self._rename(old, new, places, step):
                        moved.append((old, new))
                        was = keys.pop(old, None)
                        keys.pop(new, None)
                        keys |= {} if was is None else {new: was}
                case ddl.DropTable(table=name) if self.mode != "history":
                    self._drop(name)
                    keys.pop(name, None)
                case ddl.CreateTable(table=name):
                    if self._create(one, places, step) and one.columns:
                        keys[name] = one.key
                case ddl.LoseRows(table=name, clause=clause):
                    _log.warning("ddl_rows_not_followed", table=str(name), clause=clause)
                case _:
                    columns.append(one)
        if self.done:
            _log.info("ddl_followed", table=str(own), sql=shown(change.sql), statements=self.done)
        return DDLResult(tuple(touched), tuple(moved), tuple(self.done), keys.get(own))

    def _named(self, one: ddl.Operation) -> ddl.Operation:
        """Return the operation with its table's database. Raises Rejected if it is ambiguous."""
        if one.table.database != ddl.ANY_DATABASE:
            return one
        known = sorted(set(self.around.databases_of(one.table.table)))
        if len(known) > 1:
            raise Rejected(f"the statement does not name the database of {one.table.table}: {known}")
        name = ddl.TableName(known[0], one.table.table) if known else one.table
        return replace(one, table=name)

    def _is_refused(self, one: ddl.Operation, ours: set[ddl.TableName], sql: str | None) -> bool:
        table = str(one.table)
        if switch := self.rules.switch_off(one):
            _log.info("ddl_switched_off", table=table, switch=switch, sql=shown(sql))
            return True
        reach = Reach(self.around.handles, self._keeps, self._made)
        if refusal := reach.refusal(one, ours, self.rules):
            _log.warning("ddl_refused", table=table, because=refusal, sql=shown(sql))
        return bool(refusal)

    def _keeps(self, name: ddl.TableName) -> bool:
        return name.database in self.around.databases_of(name.table)

    def _made(self, name: ddl.TableName) -> bool:
        table = self.catalog.load(self.name_of(name))
        return self.mode == "history" or table is None or table.properties.get(MADE) == "true"

    # ---- one table

    def _alter(
        self,
        operations: Sequence[ddl.Operation],
        keys: dict[ddl.TableName, Key],
        places: Sequence[Place],
        step: int,
        time_ms: int,
    ) -> None:
        """Change columns and rows of one table in one commit."""
        own = operations[0].table
        table, key = self.catalog.load(self.name_of(own)), keys.get(own)
        for one in operations:
            _follow_key(one, own, keys)
        if table is None or self._step_of(table, places) >= step:
            return
        self.look_again()
        ref = self.around.ref_of(own)
        commit = TableCommit(self.catalog, self.name_of(own), ref, table.transaction())
        filling = Filling(commit, self.prefix, self.mode == "history", time_ms)
        altering = Altering(commit, self.around.overrides, self.note, filling, key or ())
        if altering.apply(operations):
            commit.commit(self._mark(places, step))
            self.done += [f"{type(one).__name__} of {one.table}" for one in operations]

    def _create(self, one: ddl.CreateTable, places: Sequence[Place], step: int) -> bool:
        """Create an empty table. Returns whether the statement did. An existing table stays."""
        name = self.name_of(one.table)
        if (there := self.catalog.load(name)) is not None:
            return self._step_of(there, places) >= step
        columns = [pa.field(each.name, type_of(each, self.around.overrides)) for each in one.columns]
        if self.mode == "history" and columns:
            columns += [pa.field(f"{self.prefix}{each}", kind) for each, kind in HISTORY.items()]
        if one.like is not None and (like := self.catalog.load(self.name_of(one.like))) is not None:
            columns = list(arrow_schema(like.schema()))
        if not columns:
            return False  # its first row creates it
        self.look_again()
        how = self.around.partition_by, self.around.properties
        transaction = creating(self.catalog, name, pa.schema(columns), *how)
        ref = self.around.ref_of(one.table)
        TableCommit(self.catalog, name, ref, transaction).commit(self._mark(places, step))
        self.done.append(f"created {one.table}")
        return True

    def _rename(self, old: ddl.TableName, new: ddl.TableName, places: Sequence[Place], step: int) -> bool:
        """Rename a table. Returns whether it now has its new name, also from an earlier attempt."""
        if self.catalog.load(self.name_of(old)) is None and old.database in self.around.databases_of(
            old.table
        ):
            self.around.settle(old)  # its first rows may wait for a merge
        table, there = (self.catalog.load(self.name_of(each)) for each in (old, new))
        if self._step_of(there, places) == step or self._step_of(table, places) > step:
            return True
        if table is None or old == new:
            return False
        if there is not None:
            # The source would have refused this, so the target's table is not from the source.
            _log.warning("ddl_table_not_renamed", table=str(old), to=str(new), because="it exists")
            return False
        for each in (old, new):
            self.around.settle(each)
        for each in (old, new):
            self.around.leaving(each)
        table = self.catalog.load(self.name_of(old))
        ref = self.around.ref_of(old)
        # It moves with the table, so that a repeated step finds it under the new name.
        TableCommit(self.catalog, self.name_of(old), ref, table.transaction()).commit(
            self._mark(places, step)
        )
        self.look_again()
        self.catalog.rename(self.name_of(old), self.name_of(new))
        self.done.append(f"renamed {old} to {new}")
        return True

    def _drop(self, name: ddl.TableName) -> None:
        if self.catalog.load(self.name_of(name)) is None:
            return
        self.around.settle(name)
        self.around.leaving(name)
        self.look_again()
        self.catalog.drop(self.name_of(name))
        self.done.append(f"removed {name}")

    def _mark(self, places: Sequence[Place], step: int) -> dict[str, str]:
        return {_FOLLOWED: msgspec.json.encode((*places[0], step)).decode()}

    def _step_of(self, table: Any, places: Sequence[Place]) -> int:
        """Return the last step of this statement that is in the table, -1 if none is."""
        text = None if table is None else table.properties.get(_FOLLOWED)
        *place, step = (None, -1) if text is None else msgspec.json.decode(text)
        return step if tuple(place) in places else -1


def _is_whole(one: ddl.Operation) -> bool:
    return isinstance(one, ddl.RenameTable | ddl.DropTable | ddl.CreateTable)


def _follow_key(one: ddl.Operation, own: ddl.TableName, keys: dict[ddl.TableName, Key]) -> None:
    key = keys.get(own)
    match one:
        case ddl.ChangeKey(columns=columns):
            keys[own] = columns
        case ddl.RenameColumn(name=name, to=new) if key is not None:
            keys[own] = tuple(new if each.casefold() == name.casefold() else each for each in key)
        case ddl.DropColumn(name=name) if key is not None:
            keys[own] = tuple(each for each in key if each.casefold() != name.casefold())
