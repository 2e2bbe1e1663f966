"""Read and move the marks of one source table for a reload (see `handlers.sql.marks`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import sqlalchemy as sa

from handlers.progress.marks import BEFORE_ALL, WHOLE, Partition, Place

_REPLAYED = "@"
"""Part of the topic in a replayed dead letter's marks. Kafka's names never contain it. The original record is
in the table's own topic."""


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
