"""Apply one batch in one transaction: marks, rows and DDL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial
from itertools import groupby

import sqlalchemy as sa

from handlers.api import Batch, Change, Row, TargetUnavailable
from handlers.logs import get_logger
from handlers.mysql.ddl import TableName
from handlers.progress import WHOLE
from handlers.rows import ValueUntold, check_all_told
from handlers.sql import folding
from handlers.sql.ddl import following as ddl
from handlers.sql.ddl.schemas import SchemaChanged, Schemas
from handlers.sql.fitting import Fitting, Unfit
from handlers.sql.kept_tables import NO_TOPIC
from handlers.sql.marks import Marks, Pending, Source
from handlers.sql.naming import NameUnfit, Naming
from handlers.sql.options import SqlOptions
from handlers.sql.target.catalogs import definition
from handlers.sql.target.creating import ColumnsMissing, TableMissing, create, wanted_columns
from handlers.sql.target.known_tables import KnownTable, TableChanged, UnfitColumn, references_to
from handlers.sql.target.known_tables import TableName as TargetName
from handlers.sql.target.reflecting import KnownTables
from handlers.sql.versions import Versions
from handlers.sql.writers.writer import Columns, Rows, Writer
from handlers.values.native_types import SchemaTypes

log = get_logger("handlers.sql")

TABLE_SECONDS = 3.0
"""Seconds between attempts of a table that waits alone. Many such tables would otherwise be a load."""
UNFIT = (Unfit, UnfitColumn, NameUnfit, folding.KeyMissing, ValueUntold, UnicodeError)
"""Errors that a change itself causes."""


class Applier:
    """Applies batches. All threads of one handler share it."""

    def __init__(
        self,
        options: SqlOptions,
        naming: Naming,
        marks: Marks,
        writer: Writer,
        handles: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`handles` is described at HandlerContext."""
        self._options = options
        self._fitting = Fitting(options.unknown_columns)
        self._naming = naming
        self._marks = marks
        self._writer = writer
        self._handles = handles
        self.tables = KnownTables()
        self._schemas = Schemas(naming, options.ddl, drops=options.period is None)
        self._versions = options.period and Versions(*options.period, self._fitting, writer)

    def apply(
        self, connection: sa.Connection, batch: Batch, altered: set[TargetName], *, one_by_one: bool
    ) -> Pending:
        """Apply the pending changes and advance the marks. Returns the pending changes.

        Adds the tables of DDL to `altered`. If `one_by_one`, each change is applied alone in source order and
        a failing one raises ChangeFailed. Otherwise raises one of UNFIT or an error of the database. Always
        raises TableMissing, ColumnsMissing, SchemaChanged, FormerTopic and TargetUnavailable."""
        kept = self._marks.kept(connection)
        source = Source(batch.table, WHOLE if batch.shard is None else batch.shard)
        with kept.alone(_source_table(batch)) if folding.has_ddl(batch.changes) else nullcontext():
            if self._versions is not None:  # no key of the table keeps two topics from one row
                self._marks.lock(connection, source.table, {(NO_TOPIC, 0)}, shard=source.shard)
            pending = self._marks.pending(connection, source, batch.changes, batch.topic_ids)
            for run in folding.runs(pending.changes, one_by_one=one_by_one):
                try:
                    if run.is_ddl:
                        for place in pending.places[run.first : run.first + len(run.changes)]:
                            self._follow(connection, batch, source, place, altered)
                    else:
                        self._apply_rows(connection, batch, run)
                except (TableMissing, ColumnsMissing, SchemaChanged, TableChanged, TargetUnavailable):
                    raise
                except Exception as error:
                    if one_by_one:
                        raise folding.ChangeFailed(pending.places[run.first], error) from error
                    raise
            if pending.changes:
                self._marks.advance(connection, source, pending)
            return pending

    def _follow(
        self, connection: sa.Connection, batch: Batch, source: Source, place: int, altered: set[TargetName]
    ) -> None:
        # MySQL commits at each DDL statement. So the marks of what was applied before are stored first.
        done = self._marks.pending(connection, source, batch.changes[:place], batch.topic_ids)
        self._marks.advance(connection, source, done)
        # If it fails half way, the cached table may be wrong.
        altered.add(self._naming.target(batch.database, batch.name))
        result = ddl.apply(
            self._marks.kept(connection),
            batch.changes[place],
            self._options.ddl,
            self._naming,
            own=_source_table(batch),
            handles=self._handles,
            replay_of=batch.replay_of,
        )
        altered.update(result.targets)
        self.tables.forget(*altered)

    def create(self, connection: sa.Connection, batch: Batch, missing: TableMissing | ColumnsMissing) -> None:
        """Create what is missing, except columns dropped meanwhile. Raises NameUnfit."""
        kept, own = self._marks.kept(connection), _source_table(batch)
        making = partial(kept.making, own, self._naming)
        if isinstance(missing, TableMissing) or not isinstance(batch.changes[0].types, SchemaTypes):
            create(connection, missing, making)
            return
        with kept.alone(own):
            if not self._schemas.are_gone(kept, own, missing.columns):
                create(connection, missing, making)

    def _apply_rows(self, connection: sa.Connection, batch: Batch, run: folding.Run) -> None:
        name = self._naming.target(batch.database, batch.name)
        why_not = self._marks.own_tables.why_not(name)
        if why_not:
            raise Unfit(why_not)
        if self._versions is not None:
            self._versions.check(run.key, run.changes)
        table = self.tables.get(connection, name)
        changes, added = run.changes, {self._options.start_column, self._options.end_column}
        if table is not None:
            self._claim(connection, table, _source_table(batch))
            has_both = self._versions is None and added <= table.columns.keys()
            if has_both and added.isdisjoint(wanted_columns(changes)):
                told = "is a history: its past versions would be changed. Set mode: history"
                raise Unfit(f"{table.shown} {told}")
        if isinstance(changes[0].types, SchemaTypes):
            kept = self._marks.kept(connection)
            changes = self._schemas.as_seen(kept, _source_table(batch), changes, batch.replay_of)
        if table is None:
            if not self._options.create:
                shown = ".".join(filter(None, name))
                raise Unfit(f"the target has no table {shown}; create it, or set create: true")
            of_versions = {} if self._versions is None else self._versions.columns
            raise TableMissing(name, wanted_columns(changes), run.key, of_versions)
        key = run.key or _own_key(table, changes[0])
        because, waits = table.unsafe
        if waits == "all" or (waits == "keyless" and not key):
            raise TargetUnavailable(
                f"{table.shown}: {because}; rows could be lost or duplicated",
                retry_after=TABLE_SECONDS,
                others_go_on=True,
            )
        if self._versions is not None:
            self._versions.apply(connection, table, run.key, changes)
        elif key:
            self._apply_keyed(connection, table, key, changes, moves=not run.key)
        else:
            self._apply_keyless(connection, table, changes)
        if definition(connection, table.quoted) != table.definition:
            # The first statement locked the table, so it stays as it is now until the commit.
            raise TableChanged(table.shown)

    def _claim(self, connection: sa.Connection, table: KnownTable, source: TableName) -> None:
        common, own = self._marks.own_tables.folded(table.name), self._naming.asked(*source)
        if not self.tables.is_owned(common, own):
            why_not = self._marks.kept(connection).owners(self._naming).claim(source, table.columns)
            if why_not:
                raise Unfit(why_not)
            self.tables.own(common, own)

    def follow_schema(self, connection: sa.Connection, batch: Batch, changed: SchemaChanged) -> TargetName:
        """Follow the schema in a separate transaction. Returns the table to drop from the cache."""
        return self._schemas.follow(self._marks.kept(connection), _source_table(batch), changed)

    # ---- tables with a primary key

    def _apply_keyed(
        self,
        connection: sa.Connection,
        table: KnownTable,
        key: tuple[str, ...],
        changes: Sequence[Change],
        *,
        moves: bool,
    ) -> None:
        @cache
        def is_referred_to() -> bool:
            return bool(references_to(connection, table.name))

        def covers(row: Row) -> bool:
            # Never replace a row to which others refer by delete and insert.
            return table.is_covered_by(row) and not is_referred_to()

        for is_move, piece in folding.pieces(changes, key, covers, moves=moves):
            if is_move:
                self._move(connection, table, key, piece[0], piece[-1])
                if piece[0].op == "update" and piece[0].after == piece[0].key:  # the old row stays
                    piece = piece[-1:]  # noqa: PLW2901
            else:
                check_all_told(piece)
            folded = folding.fold(piece, key, covers=covers, moves=moves)
            self._apply_folded(connection, table, key, folded, piece)

    def _move(
        self, connection: sa.Connection, table: KnownTable, key: tuple[str, ...], gone: Change, made: Change
    ) -> None:
        """Change the old row's key to that of `made` and replace any row with that key. If the old row stays
        (see `Change.moves_key`), a copy gets the new key and the columns of `made`."""
        before, after = gone.before or {}, made.after or {}
        own = self._fitting.key(table, key, [made])
        finding = folding.Block(key, [[before[column]] for column in key], 1)
        old = self._fitting.rows(table, finding, [gone], keyed=True)
        row = self._fitting.row(table, after, made)
        new = Rows(table, own, [[after[column]] for column in key], 1, renewed=row.renewed)
        if self._writer.exists(connection, old):
            self._writer.delete(connection, new)
            if gone.op == "update" and made.op == "insert":
                self._writer.copy(connection, old, row)
            else:
                self._writer.move(connection, old, row if any(one.is_generated for one in own) else new)

    def _apply_folded(
        self,
        connection: sa.Connection,
        table: KnownTable,
        key: tuple[str, ...],
        folded: folding.Folded,
        changes: Sequence[Change],
    ) -> None:
        own = self._fitting.key(table, key, changes)
        if folded.deleted:
            keys = folding.Block(key, list(zip(*folded.deleted, strict=True)), len(folded.deleted))
            self._writer.delete(connection, self._fitting.rows(table, keys, changes, keyed=True))
        alike = list(folding.blocks([*folded.inserted, *folded.updated]))
        untold = {frozenset(one.columns): self._fitting.untold(table, one, changes) for one in alike}
        if any(untold.values()):
            for block in folding.blocks(folded.inserted):
                rows = self._fitting.rows(table, block, changes, keyed=True)
                self._put(connection, replace(rows, untold=untold[frozenset(block.columns)]), own)
            alike = list(folding.blocks(folded.updated))
        for block in alike:
            self._put(connection, self._fitting.rows(table, block, changes, keyed=True), own)

    def _put(self, connection: sa.Connection, rows: Rows, own: Columns) -> None:
        sets = frozenset(column.name for column in rows.columns)
        is_whole = all(column.name in sets for column in rows.table.columns.values() if column.is_required)
        plain = frozenset(column.name for column in own if not column.is_generated)
        if is_whole and len(plain) == len(own) and plain in rows.table.uniques:
            self._writer.upsert(connection, rows, own)
        else:
            self._writer.merge(connection, rows, own)

    # ---- tables without a primary key

    def _apply_keyless(self, connection: sa.Connection, table: KnownTable, changes: Sequence[Change]) -> None:
        mode = self._options.without_key
        if mode == "refuse":
            raise Unfit("the table has no primary key, and without_key is refuse")
        for is_new, group in groupby(changes, lambda change: change.op in ("insert", "snapshot")):
            if is_new:
                for block in folding.blocks([change.after or {} for change in group]):
                    self._writer.insert(connection, self._fitting.rows(table, block, changes))
                continue
            for change in group:
                if mode == "append":
                    raise Unfit(f"the table has no primary key, and without_key is append: no {change.op}")
                self._change_one(connection, table, change)

    def _change_one(self, connection: sa.Connection, table: KnownTable, change: Change) -> None:
        if change.before is None or not change.before_is_whole:
            raise Unfit(
                f"the table has no primary key, and the {change.op} does not have the whole old row, so the "
                "row is unknown; let the source send whole old rows, or give the table a key"
            )
        old = self._fitting.row(table, change.before, change)
        if change.after is None:
            is_there = self._writer.delete_one(connection, old)
        else:
            new = self._fitting.row(table, change.after, change)
            is_there = self._writer.update_one(connection, old, new)
            if not is_there:  # as for tables with a key, insert it
                self._writer.insert(connection, new)
        if not is_there:
            log.warning("sql_row_not_there", table=table.quoted, op=change.op, offset=change.offset)


def _source_table(batch: Batch) -> TableName:
    return TableName(batch.database, batch.name)


def _own_key(table: KnownTable, change: Change) -> tuple[str, ...]:
    """Return the target's key for a source without a key; () if the row lacks its columns."""
    row = change.after if change.after is not None else change.before
    return table.primary_key if row and all(column in row for column in table.primary_key) else ()
