"""Which source tables a handler keeps, which tables of the target it has made, and how far a statement is.

All of it is in the table of marks, within the caller's transaction. A table that the handler has made, or
renamed, has a row of its own there, without a topic; so have the columns of a table whose source writes no
DDL, as its records told them last; and so has a statement that was begun and is not done,
at the place of its record. It stays when the statement fails and the table goes on without it: its dead
letter may be replayed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple
from zlib import crc32

import msgspec
import sqlalchemy as sa

from handlers.api import Change, TargetUnavailable
from handlers.mysql.ddl import TableName
from handlers.sql.naming import Naming
from handlers.sql.own_tables import OwnTables
from handlers.sql.owners import Owners

NO_TOPIC = ""
_OF_TABLE = -2  # as its shard
_OF_STATEMENT = -3  # as its shard, or below: one for each of a partition
_OF_SCHEMA = -3  # as its shard, without a topic
_MADE, _KEPT = 1, 0  # as its offset
_LOCK_SECONDS = 30
_NO_SUCH_LOCKS = (1105, 1235)
"""Codes of clusters that give none."""
_INTERRUPTED = (1317, 1969, 3024)
"""... of a wait that somebody's KILL QUERY or the time of a statement ended."""
_COMMITS_EACH = ("mysql", "mariadb")
"""Dialects whose databases commit at each statement of DDL."""


class Statement(NamedTuple):
    """A statement as its source topic has it, also when a dead letter brings it again."""

    topic: str
    partition: int
    offset: int
    change: Change

    @classmethod
    def of(cls, change: Change, replay_of: tuple[str, int, int] | None) -> Statement:
        """`replay_of`: as of its batch."""
        return cls(*(replay_of or (change.topic, change.partition, change.offset)), change)


class _Step(msgspec.Struct, frozen=True):
    """A statement that was begun."""

    time_ms: int
    """When the source ran it: a topic that is made anew may have the same text at the same place."""
    sql: int
    """CRC-32 of its text."""
    step: int
    """From 0: which of its operations was begun last; those before it are done."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What one handler of one worker has written down."""

    connection: sa.Connection
    marks: sa.Table
    worker: str
    handler: str
    own_tables: OwnTables

    def keeps(self, name: TableName) -> bool:
        """Whether something of the source table was applied."""
        known = self._mine(name) & self._is_of_rows
        return (
            self.connection.execute(sa.select(self.marks.c.shard).where(known).limit(1)).first() is not None
        )

    def made(self, name: TableName) -> bool:
        """Whether the handler has made the table that is now the source table's."""
        return self._noted(name) == _MADE

    def is_noted(self, name: TableName) -> bool:
        """Whether the source table has a row of its own: it was made, or renamed."""
        return self._noted(name) is not None

    def _noted(self, name: TableName) -> int | None:
        row = sa.select(self.marks.c.kafka_offset).where(self._row_of_table(name))
        return self.connection.scalar(row)

    def names(self) -> Sequence[str]:
        """The source tables ("database.table") of which it keeps something."""
        mine = (self.marks.c.worker == self.worker) & (self.marks.c.handler == self.handler)
        known = sa.select(self.marks.c.source_table).where(mine, self._is_of_rows).distinct()
        return self.connection.scalars(known).all()

    def databases_of(self, table: str) -> Collection[str]:
        """The source databases of which it keeps a table of this name."""
        return {one.removesuffix(f".{table}") for one in self.names() if one.endswith(f".{table}")}

    def owners(self, naming: Naming) -> Owners:
        """Which source table each table of the target is of."""
        return Owners(self.connection, self.marks, naming, self.own_tables, self.names)

    @contextmanager
    def making(self, name: TableName, naming: Naming) -> Iterator[None]:
        """Within it the target's table of a source table is made, by one statement.

        It is noted before: MySQL keeps what a statement makes, whatever becomes of the worker after it."""
        schema, table = naming.target(*name)
        if self.connection.dialect.name not in _COMMITS_EACH:
            self._note_made(name, naming)
            yield
            return
        with self._locked(self.own_tables.folded((schema, table)), why=f"makes the table {table}"):
            # Another one may have made it since it was looked for: then the statement fails.
            if not sa.inspect(self.connection).has_table(table, schema=schema):
                self._note_made(name, naming)
            try:
                yield
            except sa.exc.DBAPIError as error:
                # What is there was made by another worker of the same name, which has noted it.
                if not error.connection_invalidated and not sa.inspect(self.connection).has_table(
                    table, schema=schema
                ):
                    self.note_gone(name)
                    self.connection.exec_driver_sql("COMMIT")
                raise

    def _note_made(self, name: TableName, naming: Naming) -> None:
        self.note_gone(name)
        self._note(name, _MADE)
        self.owners(naming).claim(name, is_there=False)

    def note_moved(self, old: TableName, new: TableName) -> None:
        was_made = self.made(old)
        self.note_gone(old)
        self.note_gone(new)
        self._note(new, _MADE if was_made else _KEPT)

    def note_gone(self, name: TableName) -> None:
        """Whoever makes a table of that name next: it is none of the handler's."""
        self.connection.execute(self.marks.delete().where(self._row_of_table(name)))

    # ---- columns that records tell

    def seen_columns(self, name: TableName, *, locked: bool = False) -> str | None:
        """What `note_columns` was given last."""
        found = sa.select(self.marks.c.seen_columns).where(self._row_of_table(name, _OF_SCHEMA))
        # DuckDB's file has one connection, and no such clause.
        has_locks = self.connection.dialect.name != "duckdb"
        return self.connection.scalar(found.with_for_update() if locked and has_locks else found)

    def seen_by_others(self, name: TableName) -> dict[str, str]:
        """Of the handler's other source tables, by their full names."""
        columns = self.marks.c
        mine = (columns.worker == self.worker) & (columns.handler == self.handler)
        of_schema = (columns.shard == _OF_SCHEMA) & (columns.topic == NO_TOPIC)
        others = sa.select(columns.source_table, columns.seen_columns).where(
            mine, of_schema, columns.source_table != str(name), columns.seen_columns.is_not(None)
        )
        return {row[0]: row[1] for row in self.connection.execute(others)}

    def note_columns(self, name: TableName, text: str, *, is_first: bool) -> None:
        """`is_first`: there are none yet. An error of the database where another worker has written some."""
        if not is_first:
            updated = (
                self.marks.update().where(self._row_of_table(name, _OF_SCHEMA)).values(seen_columns=text)
            )
            self.connection.execute(updated)
            return
        row = {**self._row(name, _OF_SCHEMA, NO_TOPIC), "seen_columns": text}
        self.connection.execute(self.marks.insert().values(row))

    # ---- statements, in databases that commit at each step

    @contextmanager
    def alone(self, own: TableName) -> Iterator[None]:
        """Within it no other session of the handler follows statements of the source table: each step lets go
        of the marks' locks, and another worker would go on from there.

        Raises TargetUnavailable where another one does for long."""
        if self.connection.dialect.name not in _COMMITS_EACH:
            yield
            return
        with self._locked(self.worker, self.handler, own, why=f"follows a statement of {own}"):
            yield

    @contextmanager
    def _locked(self, *of: object, why: str) -> Iterator[None]:
        """Raises TargetUnavailable if another session has this lock for long."""
        known = repr((self.marks.fullname, *of))
        parameters = (f"binlane {sha256(known.encode()).hexdigest()[:40]}",)
        try:
            found = self.connection.exec_driver_sql(f"SELECT GET_LOCK(%s, {_LOCK_SECONDS})", parameters)
        except sa.exc.DBAPIError as error:
            code = getattr(error.orig, "args", (None,))[0]
            if code in _INTERRUPTED:
                raise TargetUnavailable(f"another session {why}") from error
            if code not in _NO_SUCH_LOCKS:
                raise
            yield
            return
        if not found.scalar():
            raise TargetUnavailable(f"another session {why}")
        try:
            yield
        finally:
            try:
                self.connection.exec_driver_sql("DO RELEASE_LOCK(%s)", parameters)
            except sa.exc.SQLAlchemyError:
                self.connection.invalidate()  # its end lets go of it, too

    def step_of(self, own: TableName, statement: Statement) -> int | None:
        """Which step of this statement was begun last; None: none, or it is not known."""
        found = self.connection.scalar(sa.select(self.marks.c.ddl_step).where(self._begun(own, statement)))
        if found is None:
            return None
        step = msgspec.json.decode(found, type=_Step)
        return step.step if step == _step(statement, step.step) else None

    def begin_step(self, own: TableName, statement: Statement, step: int) -> None:
        """To be called before the step: the database's own commit at its first DDL statement keeps it."""
        text = msgspec.json.encode(_step(statement, step)).decode()
        begun = self._begun(own, statement)
        known = self.connection.execute(sa.select(self.marks.c.shard).where(begun)).first()
        if known is not None:
            self.connection.execute(self.marks.update().where(begun).values(ddl_step=text))
            return
        columns = self.marks.c
        lowest = self.connection.scalar(
            sa.select(sa.func.min(columns.shard)).where(
                self._mine(own),
                columns.topic == statement.topic,
                columns.kafka_partition == statement.partition,
            )
        )
        row = {
            **self._row(own, min(_OF_STATEMENT, (lowest or 0) - 1), statement.topic, statement.offset),
            "kafka_partition": statement.partition,
            "change_index": statement.change.index,
            "ddl_step": text,
        }
        self.connection.execute(self.marks.insert().values(row))

    def end_steps(self, own: TableName, statement: Statement) -> None:
        """All of the statement is done."""
        self.connection.execute(self.marks.delete().where(self._begun(own, statement)))

    # ---- rows

    def _mine(self, name: TableName) -> sa.ColumnElement[bool]:
        columns = self.marks.c
        return sa.and_(
            columns.worker == self.worker,
            columns.handler == self.handler,
            columns.source_table == str(name),
        )

    @property
    def _is_of_rows(self) -> sa.ColumnElement[bool]:
        """Of a table of which something was applied, or that was made."""
        return (self.marks.c.kafka_offset >= 0) & (self.marks.c.shard > _OF_STATEMENT)

    def _row_of_table(self, name: TableName, shard: int = _OF_TABLE) -> sa.ColumnElement[bool]:
        return sa.and_(self._mine(name), self.marks.c.shard == shard, self.marks.c.topic == NO_TOPIC)

    def _begun(self, own: TableName, statement: Statement) -> sa.ColumnElement[bool]:
        columns = self.marks.c
        return sa.and_(
            self._mine(own),
            columns.shard <= _OF_STATEMENT,
            columns.topic == statement.topic,
            columns.kafka_partition == statement.partition,
            columns.kafka_offset == statement.offset,
            columns.change_index == statement.change.index,
        )

    def _row(self, name: TableName, shard: int, topic: str, offset: int = 0) -> dict[str, Any]:
        mine = {"worker": self.worker, "handler": self.handler, "source_table": str(name)}
        place = {"topic": topic, "kafka_partition": 0, "kafka_offset": offset, "change_index": 0}
        return {**mine, "shard": shard, **place}

    def _note(self, name: TableName, what: int) -> None:
        self.connection.execute(self.marks.insert().values(self._row(name, _OF_TABLE, NO_TOPIC, what)))


def _step(statement: Statement, step: int) -> _Step:
    change = statement.change
    return _Step(change.source_time_ms, crc32((change.sql or "").encode()), step)
