"""A statement about several tables: a place in the queue of each, that none passes before it is done.

All places of a barrier are queued at one moment, by the one thread that fetches: of two barriers, every table
has the same one first, so tables never wait for each other in a ring.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from handlers import Change
from worker.chunk import Chunk, Delivery
from worker.formats.interface import Record
from worker.formats.statements import tables_of
from worker.unit import UnitState

if TYPE_CHECKING:
    from worker.assignment import Assignment
    from worker.tables import TableBook
    from worker.unit import Unit

__all__ = ["Barrier", "BarrierChunk", "add_barrier", "further_units"]


class Barrier:
    """Guarded by the lock of `Lanes` once it is queued."""

    __slots__ = ("home", "others", "over")

    def __init__(self, home: Unit, others: tuple[Unit, ...]) -> None:
        self.home = home
        """Where its statement runs."""
        self.others = others
        self.over = False
        """Its statement is done, or left with its partition."""

    def reached(self) -> bool:
        """Whether all tables are through with what comes before it."""
        return all(self._is_at(unit) for unit in (self.home, *self.others))

    def _is_at(self, unit: Unit) -> bool:
        return (
            unit.state is UnitState.BEHIND
            and unit.chunks[0].barrier is self
            and (unit.shards is None or unit.shards.through)
        )


class BarrierChunk(Chunk):
    """A barrier's place in the queue of a table where its statement does not run. It holds no record."""

    __slots__ = ()

    def __init__(self, like: Chunk, barrier: Barrier) -> None:
        super().__init__(like.assignment, like.run, [], alone=True)
        self.barrier = barrier


def add_barrier(delivery: Delivery, home: Unit, statement: Chunk, others: tuple[Unit, ...]) -> None:
    """Add the statement to the delivery, and its places in the other tables."""
    statement.barrier = barrier = Barrier(home, others)
    delivery.add(home, statement)
    for other in others:
        delivery.add(other, BarrierChunk(statement, barrier))


def further_units(assignment: Assignment, record: Record, own: Unit, book: TableBook) -> tuple[Unit, ...]:
    """The other tables that a DDL record is about, without those that no rule matches."""
    changes: list[Change] = []
    named: dict[tuple[str, str], None] = {}
    try:
        assignment.format.decode(record, changes)
        for change in changes:
            named.update(dict.fromkeys(tables_of(change.sql or "", own.table.database)))
    except Exception:
        return ()  # its own table's processor deals with it
    found: dict[Unit, None] = {}
    for database, table in named:
        found.update(dict.fromkeys(_units(book, database, table)))
    found.pop(own, None)
    return tuple(found)


def _units(book: TableBook, database: str, table: str) -> Iterator[Unit]:
    """The table's unit; of a table whose database is not known, those of all databases."""
    if database:
        unit = book.meet(database, table)
        if unit is not None:
            yield unit
        return
    for tables in list(book.units.values()):
        unit = tables.get(table)
        if unit is not None:
            yield unit
