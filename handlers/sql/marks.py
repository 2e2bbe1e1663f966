"""How far each source table was applied, kept in the target and written with the rows.

A mark is the (offset, index) of the last change that was applied, for each topic and partition that the
table's changes come from. Reading it locks it until the transaction ends, so of two workers that hold the
same change (after a rebalance one may not know yet that it has lost the partition) the second sees what the
first has done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from handlers.api import Change
from handlers.sharding import shard_of

__all__ = ["WHOLE", "Marks", "Pending", "Source"]

WHOLE = -1
"""The shard of marks of a whole table."""

_BEFORE_ALL = (-1, -1)
_NAMES = {"worker": 190, "handler": 100, "source_table": 200}
"""Characters; with the topic's 249 they fit into InnoDB's longest key."""

Partition = tuple[str, int]
Place = tuple[int, int]


class Source(NamedTuple):
    """Whose marks are meant."""

    table: str
    """database.table"""
    shard: int
    """WHOLE: batches of the whole table."""


@dataclass(frozen=True, slots=True)
class Pending:
    """What of a batch is not applied yet."""

    changes: Sequence[Change]
    places: Sequence[int]
    """Of each change in the batch."""
    has_shards: bool
    """Whether shards of the table have marks of their own."""


class Marks:
    """The marks of one handler of one worker. Methods work within the caller's transaction."""

    def __init__(self, name: str, worker: str, handler: str) -> None:
        """`name`: `table` or `schema.table`. Raises ValueError for names that are too long."""
        for kind, value in (("worker", worker), ("handler", handler)):
            if len(value) > _NAMES[kind]:
                raise ValueError(f"the {kind}'s name is longer than {_NAMES[kind]} characters: {value}")
        schema, _, table = name.rpartition(".")
        self.table = _table(table, schema or None)
        columns = self.table.c
        self._mine = {"worker": worker, "handler": handler}
        self._of_table = sa.and_(
            columns.worker == worker,
            columns.handler == handler,
            columns.source_table == sa.bindparam("of_table"),
        )
        self._select = sa.select(
            columns.shard, columns.topic, columns.kafka_partition, columns.kafka_offset, columns.change_index
        ).where(self._of_table)
        self._set = (
            self.table.update()
            .where(
                self._of_table,
                columns.shard == sa.bindparam("of_shard"),
                columns.topic == sa.bindparam("of_topic"),
                columns.kafka_partition == sa.bindparam("of_partition"),
            )
            .values(kafka_offset=sa.bindparam("new_offset"), change_index=sa.bindparam("new_index"))
        )

    def create(self, connection: sa.Connection) -> None:
        """The table, if it is not there."""
        inspector = sa.inspect(connection)
        if not inspector.has_table(self.table.name, schema=self.table.schema):
            self.table.create(connection, checkfirst=True)

    def pending(self, connection: sa.Connection, source: Source, changes: Sequence[Change]) -> Pending:
        """Lock the marks and tell which changes are beyond them."""
        if len(source.table) > _NAMES["source_table"]:
            raise ValueError(f"the table's name is too long for the marks: {source.table}")
        partitions = {(change.topic, change.partition) for change in changes}
        marks = self._locked(connection, source, partitions)
        has_shards = any(shard != WHOLE for known in marks.values() for shard in known)
        if all(_covers_none(change, marks) for change in _firsts(changes)):
            return Pending(changes, range(len(changes)), has_shards)
        places = [
            place for place, change in enumerate(changes) if not _is_applied(change, marks, source.shard)
        ]
        return Pending([changes[place] for place in places], places, has_shards)

    def advance(self, connection: sa.Connection, source: Source, pending: Pending) -> None:
        """All these changes, and all before them, are applied by this transaction."""
        last: dict[Partition, Place] = {
            (change.topic, change.partition): (change.offset, change.index) for change in pending.changes
        }
        connection.execute(
            self._set,
            [
                {
                    "of_table": source.table,
                    "of_shard": source.shard,
                    "of_topic": topic,
                    "of_partition": partition,
                    "new_offset": offset,
                    "new_index": index,
                }
                for (topic, partition), (offset, index) in last.items()
            ],
        )
        if source.shard == WHOLE and pending.has_shards:
            self._drop_shards(connection, source, last)

    def _drop_shards(
        self, connection: sa.Connection, source: Source, last: Mapping[Partition, Place]
    ) -> None:
        """A change of the whole table comes when everything before it is done: shards need no mark then."""
        columns = self.table.c
        for (topic, partition), (offset, index) in last.items():
            connection.execute(
                self.table.delete().where(
                    self._of_table,
                    columns.shard != WHOLE,
                    columns.topic == topic,
                    columns.kafka_partition == partition,
                    sa.or_(
                        columns.kafka_offset < offset,
                        sa.and_(columns.kafka_offset == offset, columns.change_index <= index),
                    ),
                ),
                {"of_table": source.table},
            )

    def _locked(
        self, connection: sa.Connection, source: Source, partitions: set[Partition]
    ) -> dict[Partition, dict[int, Place]]:
        """Partition -> shard -> mark. Every batch locks the whole table's marks first, a batch of a shard in
        shared mode: so shards go side by side, and none beside a batch of the whole table."""
        shards = {WHOLE, source.shard}
        while True:
            marks: dict[Partition, dict[int, Place]] = {}
            self._read(connection, source, self.table.c.shard == WHOLE, marks, shared=source.shard != WHOLE)
            if source.shard == WHOLE:
                self._read(connection, source, self.table.c.shard != WHOLE, marks)
            else:
                self._read(connection, source, self.table.c.shard == source.shard, marks)
            missing = [
                {
                    **self._mine,
                    "source_table": source.table,
                    "shard": shard,
                    "topic": topic,
                    "kafka_partition": partition,
                    "kafka_offset": _BEFORE_ALL[0],
                    "change_index": _BEFORE_ALL[1],
                }
                for topic, partition in sorted(partitions)
                for shard in sorted(shards)
                if shard not in marks.get((topic, partition), {})
            ]
            if not missing:
                return marks
            # There is no lock on what is not there; another worker may be making the same.
            connection.execute(_insert_if_missing(connection.dialect.name, self.table), missing)

    def _read(
        self,
        connection: sa.Connection,
        source: Source,
        of_shards: sa.ColumnElement[bool],
        marks: dict[Partition, dict[int, Place]],
        *,
        shared: bool = False,
    ) -> None:
        statement = self._select.where(of_shards).with_for_update(read=shared)
        for shard, topic, partition, offset, index in connection.execute(
            statement, {"of_table": source.table}
        ):
            marks.setdefault((topic, partition), {})[shard] = (offset, index)


def _firsts(changes: Sequence[Change]) -> Iterable[Change]:
    """The first change of each partition: its offsets only grow."""
    firsts: dict[Partition, Change] = {}
    for change in changes:
        if (change.topic, change.partition) not in firsts:
            firsts[change.topic, change.partition] = change
    return firsts.values()


def _covers_none(first: Change, marks: Mapping[Partition, Mapping[int, Place]]) -> bool:
    known = marks.get((first.topic, first.partition), {})
    return all((first.offset, first.index) > mark for mark in known.values())


def _is_applied(change: Change, marks: Mapping[Partition, Mapping[int, Place]], shard: int) -> bool:
    known = marks.get((change.topic, change.partition), {})
    place = (change.offset, change.index)
    if place <= known.get(WHOLE, _BEFORE_ALL):
        return True
    if shard == WHOLE and len(known) > 1:
        own = shard_of(change)
        shard = WHOLE if own is None else own
    return place <= known.get(shard, _BEFORE_ALL)


def _table(name: str, schema: str | None) -> sa.Table:
    def text(length: int) -> sa.String:
        # Names are compared byte by byte, whatever the database's collation.
        return sa.String(length).with_variant(sa.String(length, collation="utf8mb4_bin"), "mysql", "mariadb")

    return sa.Table(
        name,
        sa.MetaData(),
        sa.Column("worker", text(_NAMES["worker"]), primary_key=True),
        sa.Column("handler", text(_NAMES["handler"]), primary_key=True),
        sa.Column("source_table", text(_NAMES["source_table"]), primary_key=True),
        sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("topic", text(249), primary_key=True),
        sa.Column("kafka_partition", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kafka_offset", sa.BigInteger, nullable=False),
        sa.Column("change_index", sa.Integer, nullable=False),
        schema=schema,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )


def _insert_if_missing(dialect: str, table: sa.Table) -> Any:
    match dialect:
        case "postgresql":
            return postgresql.insert(table).on_conflict_do_nothing()
        case "sqlite":
            return sqlite.insert(table).on_conflict_do_nothing()
    # Not INSERT IGNORE, which would take other errors for warnings, too.
    return mysql.insert(table).on_duplicate_key_update(shard=table.c.shard)
