"""Marks: how far each source table is applied. The target stores them in the same transaction as the rows.

`handlers.progress` contains the rules. Reading a mark locks it until the transaction ends. After a
rebalance, two workers may have the same change, because one has not yet noticed that it lost the partition.
The lock makes the second worker see what the first has applied.

A mark's row also contains its topic's current id and a few former ones (`handlers.progress`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from handlers.api import Change
from handlers.progress import (
    BEFORE_ALL,
    WHOLE,
    KnownIds,
    MadeAnew,
    Partition,
    Place,
    TopicId,
    beyond,
    of_former,
    reached,
)
from handlers.sql.kept_tables import Kept
from handlers.sql.own_tables import OwnTables, insert_if_missing

_NAMES = {"worker": 190, "handler": 100, "source_table": 200}
"""Longest names, in characters. With the topic's 249 they fit into InnoDB's longest key."""
_ADDED = {"topic_id": 64, "former_topic_ids": 600, "ddl_step": 200, "seen_columns": None, "owner": None}
"""Columns that tables of earlier releases lack -> longest value in characters (None: no limit). A topic id of
Kafka has 22."""


class Source(NamedTuple):
    """What a mark belongs to."""

    table: str
    """As `database.table`."""
    shard: int
    """WHOLE for batches of the whole table."""


@dataclass(frozen=True, slots=True)
class Pending:
    """The part of a batch that is not applied yet."""

    changes: Sequence[Change]
    places: Sequence[int]
    """The index in the batch of each of these changes."""
    reached: Mapping[Partition, Place]
    """The new marks: the ends of the batch that are beyond the present marks."""
    has_shards: bool
    """Whether the table has marks of single shards."""
    topic_ids: Mapping[Partition, TopicId]
    """The topic ids of the new marks."""
    made_anew: Sequence[MadeAnew]
    """Partitions whose marks belonged to a former topic of that name."""


class _Mark(NamedTuple):
    """One row of the table of marks."""

    place: Place
    topic_id: TopicId


_Marks = dict[Partition, dict[int, _Mark]]
"""Partition -> shard -> mark."""


_SHARED_LOCK = {"postgresql": "FOR SHARE", "mysql": "LOCK IN SHARE MODE", "mariadb": "LOCK IN SHARE MODE"}


class _Statements:
    """The statements that every batch runs. Composing them for each batch costs more than running them."""

    def __init__(self, table: sa.Table, dialect: sa.Dialect) -> None:
        name = dialect.identifier_preparer.format_table(table)
        one = "?" if dialect.paramstyle == "qmark" else "%s"
        mine = f"worker = {one} AND handler = {one} AND source_table = {one}"
        read = (
            "SELECT shard, kafka_partition, kafka_offset, change_index, topic_id, former_topic_ids "
            f"FROM {name} WHERE {mine} AND topic = {one}"
        )
        # SQLite locks the whole file when the transaction begins. Only one process may open DuckDB's file,
        # and it uses one connection.
        lock = "" if dialect.name in ("sqlite", "duckdb") else " FOR UPDATE"
        shared = _SHARED_LOCK.get(dialect.name, "")
        self.ids = (
            f"SELECT DISTINCT topic_id, former_topic_ids FROM {name} "
            f"WHERE worker = {one} AND handler = {one} AND topic = {one} AND shard >= {WHOLE}"
        )
        self.lock_shard = f"{read} AND shard = {one}{lock}"
        self.share_shard = f"{read} AND shard = {one} {shared}"
        # Rows with a shard below WHOLE are not marks (see `handlers.sql.kept_tables`).
        self.lock_shards = f"{read} AND shard > {one}{lock}"
        place = f"shard = {one} AND topic = {one} AND kafka_partition = {one}"
        self.advance = (
            f"UPDATE {name} SET kafka_offset = {one}, change_index = {one}, topic_id = {one}, "
            f"former_topic_ids = {one} WHERE {mine} AND {place}"
        )
        self.drop_shards = (
            f"DELETE FROM {name} WHERE {mine} AND shard > {one} AND topic = {one} "
            f"AND kafka_partition = {one} "
            f"AND (kafka_offset < {one} OR kafka_offset = {one} AND change_index <= {one} "
            f"OR topic_id <> {one})"
        )
        self.insert = insert_if_missing(dialect.name, table)


class Marks:
    """The marks of one handler of one worker. All methods use the caller's transaction."""

    def __init__(
        self,
        name: str,
        worker: str,
        handler: str,
        dialect: sa.Dialect,
        topic_again: Mapping[str, Collection[str]] | None = None,
        *,
        period: tuple[str, str] | None = None,
    ) -> None:
        """`name` is `table` or `schema.table`. `topic_again` is described at KnownIds, and `period` at
        SqlOptions. Raises ValueError if a name is too long."""
        for kind, value in (("worker", worker), ("handler", handler)):
            if len(value) > _NAMES[kind]:
                raise ValueError(f"the {kind}'s name is longer than {_NAMES[kind]} characters: {value}")
        schema, _, table = name.rpartition(".")
        self.table = _table(table, schema or None)
        self.own_tables = OwnTables((self.table.schema, table), dialect.name)
        """Incomplete until `create` or `look` is called."""
        self.needs = ""
        """The statements with which `create` adds columns to an existing table; empty if it lacks none."""
        self._mine, self._period = (worker, handler), period
        self._sql = _Statements(self.table, dialect)
        self._known_ids = KnownIds(topic_again)

    def create(self, connection: sa.Connection) -> None:
        """Create the table, or add the columns that a table of an earlier release lacks."""
        self.table.create(connection, checkfirst=True)
        found = sa.inspect(connection).get_columns(self.table.name, schema=self.table.schema)
        there = {one["name"] for one in found}
        name = connection.dialect.identifier_preparer.format_table(self.table)
        # An earlier release may still write to the table and leaves these columns null.
        lacking = [
            f"ALTER TABLE {name} ADD COLUMN {column} "
            f"{self.table.c[column].type.compile(connection.dialect)} NULL"
            for column in _ADDED
            if column not in there
        ]
        self.needs = "; ".join(lacking)
        for statement in lacking:
            connection.exec_driver_sql(statement)
        self.look(connection)

    def look(self, connection: sa.Connection) -> None:
        """Set `own_tables` from the existing table of marks."""
        self.own_tables = OwnTables.of(connection, self.table)

    def kept(self, connection: sa.Connection) -> Kept:
        """The notes about the tables themselves, stored beside the marks."""
        return Kept(connection, self.table, *self._mine, self.own_tables, self._period)

    def pending(
        self,
        connection: sa.Connection,
        source: Source,
        changes: Sequence[Change],
        topic_ids: Mapping[str, str] | None = None,
    ) -> Pending:
        """Lock the marks and return the changes beyond them. `topic_ids`: topic -> its id, if it is known.

        Raises ValueError if the table's name is too long, and FormerTopic."""
        if len(source.table) > _NAMES["source_table"]:
            raise ValueError(f"the table's name is too long for the marks: {source.table}")
        partitions = {(change.topic, change.partition) for change in changes}
        rows = self._locked(connection, source, partitions)
        has_shards = any(shard != WHOLE for known in rows.values() for shard in known)
        ids = {each: [row.topic_id for row in known.values()] for each, known in rows.items()}
        found = topic_ids or {}
        now = {
            each: self._known_ids.followed(
                ids[each], each, found.get(each[0]), partial(self._ids, connection, each[0])
            )
            for each in ids
        }
        marks = {
            each: {shard: row.place for shard, row in known.items() if now[each].covers(row.topic_id)}
            for each, known in rows.items()
        }
        pending, places = beyond(changes, marks, source.shard)
        moved = reached(changes, marks, source.shard)
        return Pending(pending, places, moved, has_shards, now, of_former(ids, now))

    def lock(
        self, connection: sa.Connection, table: str, partitions: set[Partition], *, shard: int = WHOLE
    ) -> None:
        """Lock the table's marks of these partitions. Other sessions wait until this transaction ends, except
        those of other shards."""
        self._locked(connection, Source(table, shard), partitions)

    def advance(self, connection: sa.Connection, source: Source, pending: Pending) -> None:
        """Record that this transaction applies the pending changes. All changes before them are applied."""
        mine = (*self._mine, source.table)
        for partition, place in sorted(pending.reached.items()):
            current, former = pending.topic_ids[partition]
            ids = current, " ".join(former) or None
            connection.exec_driver_sql(self._sql.advance, (*place, *ids, *mine, source.shard, *partition))
            if source.shard == WHOLE and pending.has_shards:
                # All earlier changes are applied before one of the whole table: drop the marks of shards.
                offset, index = place
                connection.exec_driver_sql(
                    self._sql.drop_shards, (*mine, WHOLE, *partition, offset, offset, index, current)
                )

    def _ids(self, connection: sa.Connection, topic: str) -> Iterable[TopicId]:
        """Return the topic's ids in all tables. Call it after locking: a first read may fix the snapshot."""
        rows = connection.exec_driver_sql(self._sql.ids, (*self._mine, topic))
        return [_topic_id(*row) for row in rows]

    def _locked(self, connection: sa.Connection, source: Source, partitions: set[Partition]) -> _Marks:
        """Lock the marks and return them. A batch of a shard locks the whole table's marks in shared mode.
        Shards thus run in parallel, and none runs together with a batch of the whole table."""
        sql, is_whole = self._sql, source.shard == WHOLE
        shards = (WHOLE,) if is_whole else (WHOLE, source.shard)
        while True:
            marks: _Marks = {}
            # The second statement sees what others committed while the first waited for its locks.
            first = (sql.lock_shard if is_whole else sql.share_shard, WHOLE)
            second = (sql.lock_shards if is_whole else sql.lock_shard, source.shard)
            for statement, shard in (first, second):
                for topic in sorted({topic for topic, _ in partitions}):
                    of_batch = (*self._mine, source.table, topic, shard)
                    for row in connection.exec_driver_sql(statement, of_batch):
                        its_shard, partition, offset, index, current, former = row
                        mark = _Mark((offset, index), _topic_id(current, former))
                        marks.setdefault((topic, partition), {})[its_shard] = mark
            missing = [
                (topic, partition, shard)
                for topic, partition in sorted(partitions)
                for shard in shards
                if shard not in marks.get((topic, partition), {})
            ]
            if not missing:
                return {each: known for each, known in marks.items() if each in partitions}
            # A row that does not exist cannot be locked. Another worker may be inserting the same row.
            connection.execute(sql.insert, [self._first_mark(source.table, *one) for one in missing])

    def _first_mark(self, table: str, topic: str, partition: int, shard: int) -> dict[str, Any]:
        mine = dict(zip(("worker", "handler", "source_table"), (*self._mine, table), strict=True))
        place = dict(zip(("kafka_offset", "change_index"), BEFORE_ALL, strict=True))
        where = {"shard": shard, "topic": topic, "kafka_partition": partition}
        return {**mine, **where, **place, "owner": ""}  # NULL: of an earlier release


def _topic_id(current: str | None, former: str | None) -> TopicId:
    return TopicId(current, tuple((former or "").split()))


def _table(name: str, schema: str | None) -> sa.Table:
    def text(length: int | None) -> sa.String:
        if length is None:
            return sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
        # Names are compared byte by byte, independently of the database's collation.
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
        *(sa.Column(name, text(length)) for name, length in _ADDED.items()),
        schema=schema,
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )
