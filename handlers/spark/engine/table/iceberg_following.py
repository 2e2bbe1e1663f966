"""Applies one statement of the source to Iceberg tables.

All changes of one table's columns and rows are one commit, which records the statement in a table property:
a repeated statement finds it there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from handlers.api import Change, Rejected
from handlers.logs import get_logger
from handlers.mysql import ddl
from handlers.mysql.ddl import TableName
from handlers.mysql.ddl.rules import Reach
from handlers.mysql.statement_of_change import operations_of, shown
from handlers.spark.ddl.follow import DDLResult, Key
from handlers.spark.ddl.target import Place, Surroundings
from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.delta.statements import MADE
from handlers.spark.engine.table.following import Following
from handlers.spark.engine.table.world import World
from handlers.spark.iceberg.altering import Altering
from handlers.spark.iceberg.catalog import IcebergCatalog, Name
from handlers.spark.iceberg.commits import TableCommit
from handlers.spark.log.statement import Statement

_log = get_logger("handlers.spark")
_FOLLOWED = "binlane.statement"
"""The table property with the last statement that changed the table: its place and step."""


class IcebergFollowing(Following):
    """Applies log entries that are not rows to their Iceberg table."""

    def follow(
        self,
        change: Change,
        key: Key | None,
        topics: Sequence[str],
        *,
        fence: str = "",
        look_again: Callable[[], None] = lambda: None,
    ) -> DDLResult:
        topics = topics or (change.topic,)
        places = [(each, change.partition, change.offset, change.index) for each in topics]
        keys: dict[TableName, Key] = {} if key is None else {self._own: key}
        around, note = self._around(), self._note(change.source_time_ms)
        work = _Work(self._world, around, change, note, places, look_again, keys)
        return work.follow(self._own)

    def _replace(self, statement: Statement, fence: str, look_again: Callable[[], None]) -> None:
        raise Rejected(f"{self._own} is an Iceberg table: it cannot be loaded again this way")


@dataclass(slots=True)
class _Work:
    """The work on one statement. Tables are loaded right before each change."""

    world: World
    around: Surroundings
    change: Change
    note: CommitNote
    places: Sequence[Place]
    look_again: Callable[[], None]
    """Called right before each commit. Raises if another worker has followed the statement."""
    keys: dict[TableName, Key]
    done: list[str] = field(default_factory=list)

    def follow(self, own: TableName) -> DDLResult:
        operations = [self._named(one) for one in operations_of(self.change, own)]
        touched: dict[TableName, None] = {}
        moved: list[tuple[TableName, TableName]] = []
        ours, columns = {own}, list[ddl.Operation]()
        for step, one in enumerate([*operations, None]):
            is_whole = isinstance(one, ddl.RenameTable | ddl.DropTable)
            if columns and (one is None or is_whole or one.table != columns[0].table):
                self._alter(columns, step)
                columns = []
            if one is None or self._is_refused(one, ours):
                continue
            touched[one.table] = None
            match one:
                case ddl.RenameTable(table=old, to=new):
                    touched[new] = None
                    ours = (ours - {old}) | {new}
                    if self._rename(old, new, step):
                        moved.append((old, new))
                        was = self.keys.pop(old, None)
                        self.keys.pop(new, None)
                        self.keys |= {} if was is None else {new: was}
                case ddl.DropTable(table=name) if self.world.options.mode != "history":
                    self._drop(name)
                case ddl.LoseRows(table=name, clause=clause):
                    _log.warning("ddl_rows_not_followed", table=str(name), clause=clause)
                case ddl.CreateTable():
                    pass  # its first row creates it
                case _:
                    columns.append(one)
        if self.done:
            _log.info("ddl_followed", table=str(own), sql=shown(self.change.sql), statements=self.done)
        return DDLResult(tuple(touched), tuple(moved), tuple(self.done), self.keys.get(own))

    def _named(self, one: ddl.Operation) -> ddl.Operation:
        """Return the operation with its table's database. Raises Rejected if it is ambiguous."""
        if one.table.database != ddl.ANY_DATABASE:
            return one
        known = sorted(set(self.around.databases_of(one.table.table)))
        if len(known) > 1:
            raise Rejected(f"the statement does not name the database of {one.table.table}: {known}")
        return replace(one, table=TableName(known[0], one.table.table)) if known else one

    def _is_refused(self, one: ddl.Operation, ours: set[TableName]) -> bool:
        rules, table, sql = self.world.options.ddl, str(one.table), shown(self.change.sql)
        if switch := rules.switch_off(one):
            _log.info("ddl_switched_off", table=table, switch=switch, sql=sql)
            return True
        reach = Reach(self.around.handles, self._keeps, self._made)
        if refusal := reach.refusal(one, ours, rules):
            _log.warning("ddl_refused", table=table, because=refusal, sql=sql)
        return bool(refusal)

    def _keeps(self, name: TableName) -> bool:
        return name.database in self.around.databases_of(name.table)

    def _made(self, name: TableName) -> bool:
        table = self._load(name)
        is_history = self.world.options.mode == "history"
        return is_history or table is None or MADE.items() <= table.properties.items()

    # ---- one table

    @property
    def _catalog(self) -> IcebergCatalog:
        assert self.world.iceberg is not None
        return self.world.iceberg

    def _name(self, name: TableName) -> Name:
        return tuple(self.world.locations.in_catalog(*name))

    def _load(self, name: TableName) -> Any:
        return self._catalog.load(self._name(name))

    def _commit(self, name: TableName, table: Any) -> TableCommit:
        return TableCommit(self._catalog, self._name(name), self.around.ref_of(name), table.transaction())

    def _alter(self, operations: Sequence[ddl.Operation], step: int) -> None:
        """Change columns and rows of one table in one commit."""
        own = operations[0].table
        table = self._load(own)
        for one in operations:
            self._follow_key(one)
        if table is None or self._step_of(table) >= step:
            return
        self.look_again()
        commit, options = self._commit(own, table), self.world.options
        is_history, time_ms = options.mode == "history", self.change.source_time_ms
        Altering(commit, self.around.overrides, self.note, options.prefix, is_history, time_ms).apply(
            operations
        )
        if commit.is_change:
            commit.commit(self._mark(step))
            self.done += [f"{type(one).__name__} of {one.table}" for one in operations]

    def _follow_key(self, one: ddl.Operation) -> None:
        key = self.keys.get(one.table)
        match one:
            case ddl.ChangeKey(columns=columns):
                self.keys[one.table] = columns
            case ddl.RenameColumn(name=name, to=new) if key is not None:
                self.keys[one.table] = tuple(new if _are_one(each, name) else each for each in key)
            case ddl.DropColumn(name=name) if key is not None:
                self.keys[one.table] = tuple(each for each in key if not _are_one(each, name))

    def _rename(self, old: TableName, new: TableName, step: int) -> bool:
        """Rename a table. Returns whether it now has its new name, also from an earlier attempt."""
        if self._load(old) is None and self._keeps(old):
            self.around.settle(old)  # its first rows may wait for a merge
        table, there = self._load(old), self._load(new)
        if self._step_of(there) == step or self._step_of(table) > step:
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
        # The mark moves with the table, so that a repeated step finds it under the new name.
        self._commit(old, self._load(old)).commit(self._mark(step))
        self.look_again()
        self._catalog.make_namespace(self._name(new))
        self._catalog.connected().rename_table(self._name(old), self._name(new))
        self.done.append(f"renamed {old} to {new}")
        return True

    def _drop(self, name: TableName) -> None:
        self.keys.pop(name, None)
        if self._load(name) is not None:
            self.around.settle(name)
            self.around.leaving(name)
            self.look_again()
            self._catalog.connected().purge_table(self._name(name))
            self.done.append(f"removed {name}")

    def _mark(self, step: int) -> dict[str, str]:
        return {_FOLLOWED: msgspec.json.encode((*self.places[0], step)).decode()}

    def _step_of(self, table: Any) -> int:
        """Return the last step of this statement that is in the table, -1 if none is."""
        text = None if table is None else table.properties.get(_FOLLOWED)
        *place, step = (None, -1) if text is None else msgspec.json.decode(text)
        return step if tuple(place) in self.places else -1


def _are_one(column: str, other: str) -> bool:
    return column.casefold() == other.casefold()
