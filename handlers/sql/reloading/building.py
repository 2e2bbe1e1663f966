"""The table and marks in which a reload builds, and the marks that it reads and moves."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

import sqlalchemy as sa

from handlers.progress.marks import BEFORE_ALL, WHOLE, Partition, Place
from handlers.sql.naming import exact
from handlers.sql.target.known_tables import TableName

_DIGITS = 8
_OF_TABLE, _LONGEST_TABLE = "__binlane_reload_", 63
_OF_HANDLER, _LONGEST_HANDLER = "~reload_", 100
_OWN = re.compile(f"[0-9a-f]{{{_DIGITS}}}")
_REPLAYED = "@"
"""Part of the topic in a replayed dead letter's marks. Kafka's names never contain it. The original record is
in the table's own topic."""


@dataclass(frozen=True, slots=True)
class Building:
    """The new table of a reload, and the handler's name of its marks."""

    table: TableName
    handler: str

    @classmethod
    def of(cls, target: TableName, handler: str, own: str | None = None) -> Building:
        """`own` are the digits that identify the reload; None draws random ones."""
        own = own or secrets.token_hex(_DIGITS // 2)
        schema, table = target
        return cls((schema, _table_beginning(table) + own), _handler_beginning(handler) + own)

    def remove(self, connection: sa.Connection, marks: TableMarks) -> None:
        """Drop the table first and then the marks, by which a later reload finds the table."""
        schema, name = self.table
        with connection.begin():
            table = sa.Table(exact(name), sa.MetaData(), schema=None if schema is None else exact(schema))
            table.drop(connection, checkfirst=True)
        with connection.begin():
            marks.remove(connection, self.handler)


def remove_left(connection: sa.Connection, marks: TableMarks, target: TableName, handler: str) -> None:
    """Remove the tables and marks that reloads of the target's table have left. Their marks identify them: a
    table with only such a name stays. Call it while no other reload runs."""
    beginning = _handler_beginning(handler)
    with connection.begin():
        handlers = marks.handlers(connection, beginning)
    for own in (name.removeprefix(beginning) for name in handlers):
        if _OWN.fullmatch(own):
            Building.of(target, handler, own).remove(connection, marks)


def _table_beginning(table: str) -> str:
    """Return a prefix that is unique for the table and that no database would cut."""
    size = _LONGEST_TABLE - len(_OF_TABLE) - _DIGITS
    if len(table.encode()) > size:
        digest = sha256(table.encode()).hexdigest()[:8]
        table = table.encode()[: size - len(digest)].decode(errors="ignore") + digest
    return table + _OF_TABLE


def _handler_beginning(handler: str) -> str:
    """Return a prefix that is short enough for the column of the marks."""
    size = _LONGEST_HANDLER - len(_OF_HANDLER) - _DIGITS
    if len(handler) > size:
        digest = sha256(handler.encode()).hexdigest()[:8]
        handler = handler[: size - len(digest)] + digest
    return handler + _OF_HANDLER


class Mark(NamedTuple):
    place: Place
    topic_id: str | None


def places(marks: Mapping[Partition, Mark]) -> dict[Partition, Place]:
    return {each: mark.place for each, mark in marks.items()}


@dataclass(frozen=True, slots=True)
class TableMarks:
    """All methods use the caller's transaction. `handler` is the name in the marks."""

    marks: sa.Table
    worker: str
    source: str
    """As `database.table`."""

    def read(self, connection: sa.Connection, handler: str) -> dict[Partition, Mark]:
        """Return the furthest mark of each partition."""
        columns = self.marks.c
        found: dict[Partition, Mark] = {}
        rows = connection.execute(
            sa.select(
                columns.topic,
                columns.kafka_partition,
                columns.kafka_offset,
                columns.change_index,
                columns.topic_id,
            ).where(self._of(handler), columns.shard >= WHOLE, ~columns.topic.contains(_REPLAYED))
        )
        for topic, partition, offset, index, topic_id in rows:
            mark = Mark((offset, index), topic_id)
            known = found.get((topic, partition), mark)
            found[topic, partition] = max(known, mark, key=lambda one: one.place)
        return found

    def move(
        self,
        connection: sa.Connection,
        handler: str,
        there: Mapping[Partition, Mark],
        new: Mapping[Partition, Mark],
    ) -> None:
        """Move the marks from `there` to `new`. A mark that is further than `new` stays."""
        table = self.marks
        for each, mark in new.items():
            known = there.get(each, Mark(BEFORE_ALL, None))
            here = self._of(handler)
            here &= (table.c.topic == each[0]) & (table.c.kafka_partition == each[1])
            # The mark of the whole table covers its shards as well.
            connection.execute(table.delete().where(here, table.c.shard > WHOLE))
            offset, index = max(known.place, mark.place)
            moved = {
                "kafka_offset": offset,
                "change_index": index,
                "topic_id": mark.topic_id or known.topic_id,
            }
            connection.execute(table.update().where(here, table.c.shard == WHOLE).values(moved))

    def remove(self, connection: sa.Connection, handler: str) -> None:
        connection.execute(self.marks.delete().where(self._of(handler)))

    def handlers(self, connection: sa.Connection, beginning: str) -> list[str]:
        """Return all handlers of this table's marks whose name begins with `beginning`."""
        columns = self.marks.c
        mine = (columns.worker == self.worker) & (columns.source_table == self.source)
        named = columns.handler.startswith(beginning, autoescape=True)
        return list(connection.scalars(sa.select(columns.handler).where(mine, named).distinct()))

    def _of(self, handler: str) -> sa.ColumnElement[bool]:
        columns = self.marks.c
        return sa.and_(
            columns.worker == self.worker,
            columns.handler == handler,
            columns.source_table == self.source,
        )
