"""Statements about several tables: which these are, and the places that they get in all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from handlers import Change
from worker.formats.interface import Record, SeparateDDL
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
    # Tools with topics for DDL name the record's own table as rows do, others as the statement spells it.
    named = [] if isinstance(assignment.format, SeparateDDL) else [(own.table.database, own.table.name)]
    # What cannot be decoded is left to its own table's processor.
    with suppress(Exception):
        assignment.format.decode(record, changes)
        for change in changes:
            named += tables_of(change.sql or "", own.table.database)
    # Servers that do not tell case apart log a statement as it was spelled, and rows in lower case.
    spelled = (spelling for name in named for spelling in (name, tuple(map(str.lower, name))))
    found = dict.fromkeys(unit for name in spelled for unit in _units(book, *name))
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
