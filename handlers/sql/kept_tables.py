"""Record which source tables a handler replicates, which target tables it created, and steps of DDL.

All of this is in the table of marks and uses the caller's transaction. A table that the handler created or
renamed has a separate row there, without a topic. So has the last schema of a table whose source sends no
DDL. A statement that has begun and is not done has a row with the topic and offset of its record. That row
stays if the statement fails and the table continues without it, because its dead letter may be replayed."""

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
from handlers.sql.own_tables import Owners, OwnTables

NO_TOPIC = ""
_OF_TABLE = -2  # as its shard
_OF_STATEMENT = -3  # as its shard, or lower: one for each statement of a partition
_OF_SCHEMA = -3  # as its shard, without a topic
_OF_DROPPED = -5  # as its shard, without a topic
_MADE, _KEPT = 1, 0  # as its offset
_LOCK_SECONDS = 30
_NO_SUCH_LOCKS = (1105, 1235)
"""Error codes of clusters that do not support GET_LOCK."""
_INTERRUPTED = (1317, 1969, 3024)
"""Error codes of a wait that KILL QUERY or a statement timeout ended."""
_COMMITS_EACH = ("mysql", "mariadb")
"""Dialects whose databases commit at each DDL statement."""


class Statement(NamedTuple):
    """A statement with its place in the source topic, even if a dead letter is replayed."""

    topic: str
    partition: int
    offset: int
    change: Change

    @classmethod
    def of(cls, change: Change, replay_of: tuple[str, int, int] | None) -> Statement:
        """`replay_of` is described at Batch."""
        return cls(*(replay_of or (change.topic, change.partition, change.offset)), change)


class _Step(msgspec.Struct, frozen=True):
    """The step of a statement that has begun."""

    time_ms: int
    """Source time: a recreated topic may have the same text at the same offset."""
    sql: int
    """CRC-32 of its text."""
    step: int
    """Index of the operation that began last. Those before it are done."""


_read_step = msgspec.json.Decoder(_Step).decode


@dataclass(frozen=True, slots=True)
class Kept:
    """The notes of one handler of one worker."""

    connection: sa.Connection
    marks: sa.Table
    worker: str
    handler: str
    own_tables: OwnTables
    period: tuple[str, str] | None  # as in SqlOptions

    def keeps(self, name: TableName) -> bool:
        """Return whether the source table was created or renamed, or any of its changes was applied."""
        known = self._mine(name) & self._is_of_rows
        return (
            self.connection.execute(sa.select(self.marks.c.shard).where(known).limit(1)).first() is not None
        )

    def made(self, name: TableName) -> bool:
        """Return whether the handler created the target table of the source table."""
        return self.noted(name) == _MADE

    def noted(self, name: TableName) -> int | None:
        """Return None unless the source table has a row because it was created or renamed."""
        row = sa.select(self.marks.c.kafka_offset).where(self._row_of_table(name))
        return self.connection.scalar(row)

    def names(self) -> Sequence[str]:
        """Return the source tables ("database.table") that the handler replicates."""
        mine = (self.marks.c.worker == self.worker) & (self.marks.c.handler == self.handler)
        known = sa.select(self.marks.c.source_table).where(mine, self._is_of_rows).distinct()
        return self.connection.scalars(known).all()

    def databases_of(self, table: str) -> Collection[str]:
        """Return the source databases whose table of this name the handler replicates."""
        return {one.removesuffix(f".{table}") for one in self.names() if one.endswith(f".{table}")}

    def owners(self, naming: Naming) -> Owners:
        """Return the owners: which source table owns each target table."""
        return Owners(self.connection, self.marks, naming, self.own_tables, self.names, self.period)

    @contextmanager
    def making(self, name: TableName, naming: Naming) -> Iterator[None]:
        """Wrap the one statement that creates the target table of a source table.

        The note is written first, because MySQL keeps a created table even if the worker then dies."""
        schema, table = naming.target(*name)
        if self.connection.dialect.name not in _COMMITS_EACH:
            self._note_made(name, naming)
            yield
            return
        with self._locked(self.own_tables.folded((schema, table)), why=f"creates the table {table}"):
            # Another session may have created it since the last check. Then the statement fails.
            if not sa.inspect(self.connection).has_table(table, schema=schema):
                self._note_made(name, naming)
            try:
                yield
            except sa.exc.DBAPIError as error:
                # If the table exists, another worker of the same name has created and noted it.
                if not error.connection_invalidated and not sa.inspect(self.connection).has_table(
                    table, schema=schema
                ):
                    self.note_gone(name)
                    self.connection.exec_driver_sql("COMMIT")
                raise

    def _note_made(self, name: TableName, naming: Naming) -> None:
        self.note_gone(name)
        self._note(name, _MADE)
        self.owners(naming).claim(name)

    def note_moved(self, old: TableName, new: TableName) -> None:
        was_made, dropped = self.made(old), self.dropped(old)
        self.note_gone(old)
        self.note_gone(new)
        self._note(new, _MADE if was_made else _KEPT)
        self.note_dropped(new, dropped)

    def note_gone(self, name: TableName) -> None:
        """Forget the table. A new table of that name will not be the handler's."""
        self.connection.execute(self.marks.delete().where(self._row_of_table(name)))
        self.note_dropped(name, ())

    # ---- columns that the source has dropped, and the target keeps

    def dropped(self, name: TableName) -> frozenset[str]:
        found = sa.select(self.marks.c.seen_columns).where(self._row_of_table(name, _OF_DROPPED))
        text = self.connection.scalar(found)
        return frozenset(() if text is None else msgspec.json.decode(text))

    def note_dropped(self, name: TableName, columns: Collection[str]) -> None:
        self.connection.execute(self.marks.delete().where(self._row_of_table(name, _OF_DROPPED)))
        if columns:
            text = msgspec.json.encode(sorted(columns)).decode()
            row = {**self._row(name, _OF_DROPPED, NO_TOPIC), "seen_columns": text}
            self.connection.execute(self.marks.insert().values(row))

    # ---- columns from the schemas of records

    def seen_columns(self, name: TableName, *, locked: bool = False) -> str | None:
        """Return the last text of `note_columns`."""
        found = sa.select(self.marks.c.seen_columns).where(self._row_of_table(name, _OF_SCHEMA))
        # DuckDB has no FOR UPDATE, and its file has only one connection.
        has_locks = self.connection.dialect.name != "duckdb"
        return self.connection.scalar(found.with_for_update() if locked and has_locks else found)

    def seen_by_others(self, name: TableName) -> Sequence[tuple[str, str]]:
        """Return (full name, last text) of all other source tables. The handler's own texts come last."""
        columns = self.marks.c
        mine = (columns.worker == self.worker) & (columns.handler == self.handler)
        of_schema = (columns.shard == _OF_SCHEMA) & (columns.topic == NO_TOPIC)
        others = sa.select(columns.source_table, columns.seen_columns).where(
            of_schema, columns.source_table != str(name), columns.seen_columns.is_not(None)
        )
        return [(row[0], row[1]) for row in self.connection.execute(others.order_by(mine))]

    def note_columns(self, name: TableName, text: str, *, is_first: bool) -> None:
        """Store the text. If `is_first`, a note of another worker makes the database raise an error."""
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
        """Let only one session of the handler follow statements of the source table. Each step releases the
        marks' locks, so another worker could otherwise continue from there.

        Raises TargetUnavailable if another session takes too long."""
        if self.connection.dialect.name not in _COMMITS_EACH:
            yield
            return
        with self._locked(self.worker, self.handler, own, why=f"follows a statement of {own}"):
            yield

    @contextmanager
    def _locked(self, *of: object, why: str) -> Iterator[None]:
        """Take a named lock. Raises TargetUnavailable if another session keeps it too long."""
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
                self.connection.invalidate()  # the end of the session releases the lock as well

    def step_of(self, own: TableName, statement: Statement) -> int | None:
        """Return the step of this statement that began last, or None if none is noted."""
        found = self.connection.scalar(sa.select(self.marks.c.ddl_step).where(self._begun(own, statement)))
        if found is None:
            return None
        step = _read_step(found)
        return step.step if step == _step(statement, step.step) else None

    def begin_step(self, own: TableName, statement: Statement, step: int) -> None:
        """Call it before the step. The implicit commit of its first DDL statement stores the note."""
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
        """Remove the note because the whole statement is done."""
        self.connection.execute(self.marks.delete().where(self._begun(own, statement)))

    # ---- rows

    def _mine(self, name: TableName) -> sa.ColumnElement[bool]:
        columns = self.marks.c
        return sa.and_(
            columns.worker == self.worker, columns.handler == self.handler, columns.source_table == str(name)
        )

    @property
    def _is_of_rows(self) -> sa.ColumnElement[bool]:
        """Matches rows of tables that were created or renamed, or of which something was applied."""
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
