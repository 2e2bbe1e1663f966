"""Reload a table of the target: build a new one beside it and replace the rows.

An ordinary handler applies the new rows to a separate table with separate marks. Then one transaction locks
the table's marks, so no worker can apply anything to it. It replaces the rows and moves the marks to the
position of the new rows. Workers skip later batches up to that position, because these are applied already.
If anything fails before the commit, the table stays unchanged."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import msgspec
import sqlalchemy as sa

from handlers.api import Batch, HandlerContext, TargetUnavailable
from handlers.mysql.ddl import TableName
from handlers.options.templates import literal
from handlers.progress import Partition, Place
from handlers.reloading import Behind, CatchUp, Differs, Hindered, Refused, Taken, is_behind, told_apart
from handlers.sql.handler import SqlHandler
from handlers.sql.marks import Marks
from handlers.sql.naming import Naming, exact_table
from handlers.sql.options import SqlOptions
from handlers.sql.reloading import building
from handlers.sql.target.engine import check_url, make_engine
from handlers.sql.target.errors import DATABASE_ERRORS, Fault, fault_of, told
from handlers.sql.target.known_tables import KnownTable, references_to
from handlers.sql.target.known_tables import TableName as TargetName
from handlers.sql.target.reflecting import KnownTables
from handlers.sql.writers.writer import insert_into

_STATEMENT_SECONDS = 24 * 3600.0
"""Timeout of a statement: two statements replace all rows."""
_PING_SECONDS = 10.0
"""Interval of checks that keep the connection alive: network devices drop silent connections."""


class SqlReload:
    """The reload of one table, between `begin` and `end` (see TableReload). For one thread."""

    at_once: ClassVar[int] = 1_000

    def __init__(self, options: Mapping[str, Any], context: HandlerContext, database: str, name: str) -> None:
        """`options` and `context` are those of the handler that keeps the source table `database.name`."""
        own = self._options = SqlOptions.model_validate(dict(options))
        self._url = check_url(self._options.url)
        self._dialect = self._url.get_backend_name()
        self._context = context
        self._table = f"{database}.{name}"
        self._own = TableName(database, name)
        self._naming = Naming.of(self._dialect, self._options.schema_, self._options.table)
        self._target: TargetName = self._naming.target(database, name)
        self._building = building.Building.of(self._target, context.handler)
        self._new_context = msgspec.structs.replace(
            context, handler=self._building.handler, handles=lambda table: table == self._table
        )
        schema, table = self._building.table
        names = {"table": literal(table), "schema": None if schema is None else literal(schema)}
        self.handler = SqlHandler(**{**options, **names, "create": True})
        """Applies changes to the new table."""
        self._open = contextlib.ExitStack()
        self._engine = make_engine(self._url, folder=context.folder, pool_size=1, timeout=_STATEMENT_SECONDS)
        self._connection: sa.Connection | None = None
        self._marks = Marks(
            own.marks_table, context.worker, context.handler, self._engine.dialect, own.topic_again
        )
        self._own_marks = building.TableMarks(self._marks.table, context.worker, self._table)
        self._still: building.Still | None = None  # set once this reload may have created something
        self._pinged = 0.0
        self._applied: dict[Partition, Place] = {}  # the last change of each partition

    def begin(self) -> None:
        if self._options.mode == "history":
            raise Refused("it is a history, whose past versions its source does not have")
        if self._dialect == "duckdb":
            raise Refused("only one process can open DuckDB's file: its tables cannot be reloaded")
        self._open.callback(self._engine.dispose)
        try:
            self._connection = self._open.enter_context(self._engine.connect())
            still = self._open.enter_context(building.alone(self._connection, repr(self._target)))
            with self._connection.begin():
                self._refuse_unfit(self._connection)
            building.remove_left(self._connection, self._own_marks, self._target, self._context.handler)
            self._still, self._pinged = still, time.monotonic()
            self.handler.open(self._new_context)
            self._open.callback(self.handler.close)
        except building.Busy:
            raise Refused(f"another reload of {self._table} is under way") from None
        except DATABASE_ERRORS as error:
            raise Refused(f"the target: {told(error)}") from error

    def end(self) -> str:
        shown = ".".join(filter(None, self._building.table))
        try:
            self.handler.close()
            if self._still is not None:
                # No other reload uses this table, even if the lock is lost.
                self._building.remove(self._connected, self._own_marks)
        except DATABASE_ERRORS as error:
            return f"the table {shown} could not be removed: {told(error)}; the next reload removes it"
        else:
            return ""
        finally:
            with contextlib.suppress(*DATABASE_ERRORS):
                self._open.close()
            self._connection = self._still = None

    def marks(self) -> dict[Partition, Place]:
        try:
            with self._connected.begin():
                return building.places(self._read(self._context.handler))
        except DATABASE_ERRORS as error:
            raise Refused(f"the target: {told(error)}") from error

    def apply(self, batch: Batch) -> None:
        if time.monotonic() - self._pinged >= _PING_SECONDS:
            self._refuse_lost()
        try:
            self.handler.handle(batch)
        except TargetUnavailable:
            # The server may have ended idle sessions. The next attempt opens a new one.
            self.handler.handle(batch)
        for change in batch.changes:
            self._applied[change.topic, change.partition] = change.offset, change.index

    def take_over(self, read: Mapping[Partition, int], catch_up: CatchUp | None = None) -> Taken:
        """Replace the rows. No worker moves the marks while `catch_up` runs. SQLite has one writer at a time,
        so there `catch_up` is not called."""
        connection = self._connected
        try:
            with self._alone_in_transaction(), self._marks.kept(connection).alone(self._own):
                self._marks.lock(connection, self._table, set(read))
                self._refuse_unfit(connection)
                if catch_up is not None and self._dialect != "sqlite":
                    there = self._read(self._context.handler)
                    if is_behind(read, building.places(there)):
                        read = catch_up(building.places(there))
                self._lock_table(connection)
                self._move_marks(connection, read)
                taken = self._replace(connection)
                # A topic without marks was not locked. Its rows would be lost now.
                if is_behind(read, building.places(self._read(self._context.handler))):
                    raise Behind
                return taken
        except TargetUnavailable as error:
            raise Refused(f"the target: {error}") from error
        except DATABASE_ERRORS as error:
            fault = fault_of(error)
            lost = fault is Fault.UNAVAILABLE
            doubt = ". If that was at the commit, all its rows are new; otherwise none is" if lost else ""
            kind = Hindered if fault in (Fault.CONFLICT, Fault.LOCKED) else Refused
            raise kind(f"the target: {told(error)}{doubt}") from error

    # ---- within a transaction

    @contextlib.contextmanager
    def _alone_in_transaction(self) -> Iterator[None]:
        with self._connected.begin():
            self._refuse_lost()
            yield

    def _refuse_lost(self) -> None:
        """Raise Refused if the lock is lost: the next reload may have removed the new table."""
        self._pinged, why = time.monotonic(), ""
        try:
            is_held = self._still is not None and self._still()
        except DATABASE_ERRORS as error:
            is_held, why = False, f" ({told(error)})"
        if not is_held:
            raise Refused(
                f"the lock against other reloads of {self._table} is lost: its session was cut, or its file "
                f"removed{why}; start again"
            )

    def _lock_table(self, connection: sa.Connection) -> None:
        """Keep replayed dead letters out: they have separate marks. PostgreSQL's DELETE would skip their
        uncommitted rows; other databases wait for them."""
        if self._dialect == "postgresql":
            shown = connection.dialect.identifier_preparer.format_table(exact_table(*self._target))
            if KnownTables().get(connection, self._target) is not None:
                connection.exec_driver_sql(f"LOCK TABLE {shown} IN SHARE ROW EXCLUSIVE MODE")

    def _move_marks(self, connection: sa.Connection, read: Mapping[Partition, int]) -> None:
        there, new = self._read(self._context.handler), self._read(self._new_context.handler)
        for each, mark in new.items():
            known_id = there[each].topic_id if each in there else None
            if None not in (known_id, mark.topic_id) and known_id != mark.topic_id:
                raise Refused(
                    f"the topic {each[0]} was recreated, and no change of {self._table} in the new one was "
                    "applied yet: let the worker read that far first"
                )
        if is_behind(read, building.places(there)):
            raise Behind
        if any(each not in new or new[each].place < place for each, place in self._applied.items()):
            raise Hindered("the target does not show the changes that were applied to the new table")
        self._own_marks.move(connection, self._context.handler, there, new)

    def _replace(self, connection: sa.Connection) -> Taken:
        tables = KnownTables()
        old, new = tables.get(connection, self._target), tables.get(connection, self._building.table)
        shown = ".".join(filter(None, self._target))
        if old is None:
            raise Differs(f"the target has no table {shown}; the next change that is applied creates it")
        if new is None:
            raise Differs(f"according to the topic, there is no table {shown}")
        ours, theirs = _columns_of(connection, old), _columns_of(connection, new)
        if ours != theirs:
            raise Differs(f"{shown} has other columns than the topic: {told_apart(ours, theirs)}")
        for one in old.columns.values():
            null = f"SELECT 1 FROM {new.quoted} WHERE {one.quoted} IS NULL LIMIT 1"
            if one.null_becomes and connection.exec_driver_sql(null).first() is not None:
                raise Differs(
                    f"according to the topic, {one.name} of {shown} is NULL in some row, but the database "
                    f"would write {one.null_becomes}; make the target's column nullable"
                )
        before = connection.execute(sa.delete(exact_table(*self._target))).rowcount
        rows = exact_table(*self._building.table)
        after = connection.scalar(sa.select(sa.func.count()).select_from(rows)) or 0
        columns = tuple(one for one in old.columns.values() if not one.is_generated)
        shown_columns = ", ".join(one.quoted for one in columns)
        # insert_into as workers use it, which also handles identity columns.
        connection.exec_driver_sql(f"{insert_into(old, columns)} SELECT {shown_columns} FROM {new.quoted}")
        return Taken(before, after)

    def _refuse_unfit(self, connection: sa.Connection) -> None:
        table = self._marks.table
        if not sa.inspect(connection).has_table(table.name, schema=table.schema):
            raise Refused(f"there are no marks ({self._options.marks_table}): no worker has written here yet")
        self._marks.look(connection)
        kept, folded = self._marks.kept(connection), self._marks.own_tables.folded
        known = kept.names()
        if self._table not in known:
            raise Refused(f"worker {self._context.worker} has applied nothing of {self._table} here yet")
        there = KnownTables().get(connection, self._target)
        if there is not None and (why_not := kept.owners(self._naming).claim(self._own, there.columns)):
            raise Refused(why_not)
        place = folded(self._target)
        shared = [
            one
            for one in known
            if one != self._table and folded(self._naming.target(*one.split(".", 1))) == place
        ]
        if shared:
            shown = ".".join(filter(None, self._target))
            raise Refused(f"{shown} also has rows of {', '.join(sorted(shared)[:3])}, which would be lost")
        taken = [one for one in known if self._naming.target(*one.split(".", 1)) == self._building.table]
        if taken:
            shown = ".".join(filter(None, self._building.table))
            raise Refused(f"{shown}, where it would be built, has the rows of {taken[0]}")
        found = references_to(connection, self._target)
        others = [one.table for one in found if one.heeds_deletes and not one.is_own]
        if others:
            raise Refused(
                f"foreign keys of {', '.join(others[:3])} would delete or change rows there, too "
                "(ON DELETE CASCADE, SET NULL or SET DEFAULT)"
            )

    def _read(self, handler: str) -> dict[Partition, building.Mark]:
        return self._own_marks.read(self._connected, handler)

    @property
    def _connected(self) -> sa.Connection:
        if self._connection is None:
            raise RuntimeError("begin was not called")
        return self._connection


def _columns_of(connection: sa.Connection, table: KnownTable) -> dict[str, str]:
    types = {one.name: one.sql_type for one in table.columns.values()}
    return {
        name: "?" if isinstance(type_, sa.types.NullType) else type_.compile(connection.dialect)
        for name, type_ in types.items()
    }
