"""Drop and retype columns by the records' schemas, for sources whose topics contain no DDL statements.

The table of marks stores the last schema. Records of an earlier schema may still arrive, from another
partition or as a dead letter. Their source time shows that they are older, so they change no columns. A
column that only the snapshot had is kept: PostgreSQL does not log values of generated columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from handlers.api import Change, Row
from handlers.logs import get_logger
from handlers.mysql.ddl import Column, DropColumn, ModifyColumn, TableName
from handlers.mysql.ddl.rules import DDLRules
from handlers.sql.ddl.columns import drop_column, modify_column
from handlers.sql.ddl.target import Target, TargetTable, alike
from handlers.sql.ddl.versions import set_column_aside
from handlers.sql.kept_tables import Kept
from handlers.sql.naming import Naming
from handlers.sql.target.creating import fitting
from handlers.values.native_types import NativeTypes, SchemaTypes, full, in_full, read_full

log = get_logger("handlers.sql")

_WITHOUT_SIZE = (sa.Integer,)
"""MariaDB reports these types with a display width."""


class SeenColumn(msgspec.Struct, frozen=True, array_like=True):
    to: str | None
    """Its name in the target. None, noted only by earlier releases: it is not sent."""
    source: str
    """Its full type in the source; empty if column rules change the type."""
    kept: str
    """Its full type after column rules."""


class Seen(msgspec.Struct, frozen=True):
    """The last schema of a table's records."""

    columns: dict[str, SeenColumn]
    since_ms: int
    """Source time of the first change with this schema."""
    topic: str
    partition: int
    offset: int
    streamed: list[str]
    """Columns of the source that records of its log had, not only the snapshot."""
    dropped: list[str]
    """Dropped columns of the target that earlier records may still contain."""
    target: str = ""
    """OwnTables.key of the target's table; empty: noted by an earlier release."""


_read_seen = msgspec.json.Decoder(Seen).decode


class SchemaChanged(Exception):
    """The columns must first follow the schema of a change, in a separate transaction."""

    def __init__(self, change: Change, types: SchemaTypes) -> None:
        super().__init__("the columns of the source have changed")
        self.change = change
        self.types = types


class Schemas:
    """The schemas that one handler follows. Safe for threads."""

    def __init__(self, naming: Naming, rules: DDLRules, *, drops: bool) -> None:
        """`drops`: remove dropped columns, which histories keep. So does a switch of `rules`."""
        self._naming = naming
        self._rules = rules
        self._drops = drops
        # Threads share it without a lock: each access is one dict operation.
        self._followed: dict[TableName, SchemaTypes] = {}
        """Last schemas without differences. Compared by identity, because sources share the mapping."""

    def as_seen(
        self, kept: Kept, own: TableName, changes: Sequence[Change], replay_of: tuple[str, int, int] | None
    ) -> Sequence[Change]:
        """Return changes of one schema without columns dropped since. `replay_of` is described at Batch.

        Raises SchemaChanged if the columns must follow the schema first."""
        change, types = changes[0], changes[0].types
        if not isinstance(types, SchemaTypes) or self._followed.get(own) is types:
            return changes
        seen = _seen_of(kept, own)
        if replay_of is not None:
            return changes if seen is None else _without_dropped(changes, seen)
        place = self._place(kept, own)
        if _to_note(change, types, seen, place) is not None:
            seen = _seen_of(kept, own, locked=True)  # another worker may have noted one meanwhile
            noted = _to_note(change, types, seen, place)
            if noted is not None:
                _note(kept, own, noted, is_first=seen is None)
                return changes
        if seen is None:
            return changes
        if seen.columns == _columns_of(types):
            if seen.columns.keys() <= set(seen.streamed):
                self._followed[own] = types
        elif _is_newer(change, seen):
            raise SchemaChanged(change, types)
        else:
            return _without_dropped(changes, seen)
        return changes

    def are_gone(self, kept: Kept, own: TableName, columns: Iterable[str]) -> bool:
        """Return whether one of these columns was dropped after its changes were checked, perhaps by another
        worker. If so, the next check reads the notes. No column is dropped until the transaction ends."""
        seen = _seen_of(kept, own, locked=True)
        if seen is None or set(seen.dropped).isdisjoint(columns):
            return False
        self._followed.pop(own, None)
        return True

    def follow(self, kept: Kept, own: TableName, changed: SchemaChanged) -> TargetTable:
        """Drop and retype columns by the schema of the change, unless another worker has done so. Needs a
        separate transaction. (New columns are added with their first row.) Returns the target's table.

        Raises Rejected, and SQLAlchemy's errors."""
        change, types = changed.change, changed.types
        target = Target(kept, self._naming, change.source_time_ms, done=[])
        table = target.table(own)
        with kept.alone(own):
            seen = _seen_of(kept, own, locked=True)
            if seen is None or not _is_newer(change, seen):
                return table
            dropped = self._follow(target, own, seen, types)
            _note(kept, own, _seen(change, types, self._place(kept, own), seen, dropped))
        if target.done:
            log.info("schema_followed", table=str(own), statements=target.done)
        return table

    def _follow(self, target: Target, own: TableName, seen: Seen, types: SchemaTypes) -> list[str]:
        """Follow the schema. Returns the columns dropped now and before."""
        table = target.table(own)
        now, streamed = _columns_of(types), set(seen.streamed)
        columns = target.columns(table)

        def spelled(name: str) -> str:
            return alike(name, columns) or name

        shared = {spelled(name): kept for name, kept in self._shared(target, own).items()}
        dropped, noted = list(seen.dropped), {one.to for one in seen.columns.values() if one.to is not None}
        # Of two names that differ only in case, the target may not have one yet.
        noted = {one for one in noted if spelled(one) not in noted - {one}}
        for name, old in seen.columns.items():
            new = now.get(name)
            if old.to is None or old.to not in noted:
                continue
            if new is None:
                is_gone = name in streamed and name not in types.columns and old.to not in types
                if is_gone:
                    is_theirs = spelled(old.to) in shared
                    if self._allows(DropColumn(own, old.to)) and self._drops and not is_theirs:
                        drop_column(target, table, old.to)
                    dropped.append(old.to)
            elif new.to == old.to and new.kept != old.kept and new.source and old.source:
                column = Column(old.to, fitting(target.connection, old.to, read_full(new.kept)))
                is_theirs = shared.get(spelled(old.to), new.kept) != new.kept
                if (
                    not is_theirs
                    and self._allows(ModifyColumn(own, column))
                    and _is_as_made(target, table, old)
                    and _is_known(table, old, new)
                ):
                    modify_column(target, table, column)
        if not self._drops or not self._rules.drop_columns:
            kept = {*map(spelled, noted.difference(dropped)), *shared}
            # A new column may have the name that it gets, or in PostgreSQL find one of another case.
            while aside := [one for one in dropped if spelled(one) in {*map(spelled, types)} - kept]:
                dropped.remove(aside[0])
                dropped += set_column_aside(target, table, target.column(table, aside[0]))
                columns = target.columns(table)
        return [name for name in dropped if name not in types]

    def _shared(self, target: Target, own: TableName) -> dict[str, str]:
        """Return column -> full type of the other source tables that share the target's table."""
        found: dict[str, Iterable[SeenColumn]] = {}
        known = ("", self._place(target.kept, own))  # another handler may write that source table elsewhere
        for name, text in target.kept.seen_by_others(own):
            # Any dot may be the one between database and table.
            ends = (place for place, letter in enumerate(name) if letter == ".")
            seen = _read_seen(text)
            if seen.target in known and any(
                target.table(own) == self._naming.target(name[:end], name[end + 1 :]) for end in ends
            ):
                found[name] = seen.columns.values()  # the handler's own text comes last
        return {one.to: one.kept for columns in found.values() for one in columns if one.to is not None}

    def _place(self, kept: Kept, own: TableName) -> str:
        return kept.own_tables.key(self._naming.target(*own))

    def _allows(self, operation: DropColumn | ModifyColumn) -> bool:
        switch = self._rules.switch_off(operation)
        if switch is not None:
            log.info(
                "ddl_switched_off", table=str(operation.table), switch=switch, sql=type(operation).__name__
            )
        return switch is None


def _seen_of(kept: Kept, name: TableName, *, locked: bool = False) -> Seen | None:
    text = kept.seen_columns(name, locked=locked)
    return None if text is None else _read_seen(text)


def _columns_of(types: SchemaTypes) -> dict[str, SeenColumn]:
    """Return the columns that are sent to the target."""
    leaving, found = in_full(types), {}
    for name, one in types.columns.items():
        if one.to is not None:
            kept = full(leaving[one.to])
            found[name] = SeenColumn(one.to, one.type if one.type == kept else "", kept)
    return found


def _is_newer(change: Change, seen: Seen) -> bool:
    """Return whether the change is newer than the first one with the noted schema."""
    is_behind = (change.topic, change.partition) == (
        seen.topic,
        seen.partition,
    ) and change.offset > seen.offset
    return is_behind or change.source_time_ms > seen.since_ms


def _without_dropped(changes: Sequence[Change], seen: Seen) -> Sequence[Change]:
    """Return changes of an earlier schema without the columns dropped since."""
    dropped = frozenset(seen.dropped)

    def left(row: Mapping[str, Any] | None) -> Row | None:
        return None if row is None else {name: value for name, value in row.items() if name not in dropped}

    return [
        msgspec.structs.replace(
            change,
            before=left(change.before),
            after=left(change.after),
            types=None if change.types is None else NativeTypes(left(in_full(change.types)) or {}),
        )
        for change in changes
    ]


def _is_as_made(target: Target, table: TargetTable, column: SeenColumn) -> bool:
    """Return whether the target's column has the handler's type. Somebody chose any other type."""
    own = target.column(table, column.to or "")
    if own is None:
        return False
    there = target.columns(table)[own]
    made = target.type_for(table, own, fitting(target.connection, own, read_full(column.kept)))
    if _spelled(target, there) == _spelled(target, made):
        return True
    log.warning("column_not_retyped", table=table.name, column=own, type=target.spell(there))
    return False


def _is_known(table: TargetTable, old: SeenColumn, new: SeenColumn) -> bool:
    """Return whether texts can be converted: those of bytes may be hexadecimal digits."""
    if (old.kept, new.kept) != ("longtext", "longblob"):
        return True
    log.warning("column_not_retyped", table=table.name, column=old.to, type="text")
    return False


def _spelled(target: Target, type_: sa.types.TypeEngine[object]) -> str:
    if isinstance(type_, _WITHOUT_SIZE):
        return type_.__class__.__name__.upper()
    return target.spell(type_).partition(" CHARACTER SET")[0].partition(" COLLATE")[0]


def _seen(
    change: Change, types: SchemaTypes, target: str, before: Seen | None = None, dropped: Sequence[str] = ()
) -> Seen:
    columns = _columns_of(types)
    streamed = set() if before is None else set(before.streamed) & columns.keys()
    return Seen(
        columns,
        change.source_time_ms,
        change.topic,
        change.partition,
        change.offset,
        sorted(streamed) if change.op == "snapshot" else list(columns),
        list(dropped),
        target,
    )


def _to_note(change: Change, types: SchemaTypes, seen: Seen | None, target: str) -> Seen | None:
    """Return the new note for a change that needs no DDL, or None if nothing is new."""
    if seen is None:
        return _seen(change, types, target)
    is_known = change.op == "snapshot" or seen.columns.keys() <= set(seen.streamed)
    if (is_known and seen.target == target) or seen.columns != _columns_of(types):
        return None
    streamed = seen.streamed if is_known else list(seen.columns)
    return msgspec.structs.replace(seen, streamed=streamed, target=target)


def _note(kept: Kept, name: TableName, seen: Seen, *, is_first: bool = False) -> None:
    kept.note_columns(name, msgspec.json.encode(seen).decode(), is_first=is_first)
