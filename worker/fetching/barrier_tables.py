"""Statements about several tables: which these are, and the places that they get in all of them."""

from __future__ import annotations

from collections.abc import Iterator

from handlers import Change
from worker.formats.interface import Record
from worker.formats.statements import tables_of
from worker.units.assigned_partition import Assignment
from worker.units.barrier import Barrier
from worker.units.chunk import BarrierChunk, Chunk
from worker.units.delivery import Delivery
from worker.units.table_book import TableBook
from worker.units.table_names import fits
from worker.units.unit import Unit


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
    """The table's unit; of a table whose database is not known, those of all databases. Of a name that no
    table can have, none: there are no records to wait for."""
    if not (fits(database) and fits(table)):
        return
    if database:
        unit = book.meet(database, table)
        if unit is not None:
            yield unit
        return
    for tables in list(book.units.values()):
        unit = tables.get(table)
        if unit is not None:
            yield unit
