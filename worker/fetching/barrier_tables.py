"""Statements about several tables: find these tables, and add the statement to each one's queue."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial

from handlers import Change
from handlers.logs import get_logger
from handlers.mysql.online_changes import replaced_by
from handlers.options.matching import lowered
from worker.column_rules.plan import ShownBehind
from worker.configuration import Configuration, HandlerEntry
from worker.formats.gathered import Places
from worker.formats.images import tables_of
from worker.formats.interface import Apart, Format, Record, Skip, UndecodableRecord
from worker.units.assigned_partition import Assignment
from worker.units.chunk import Barrier, BarrierChunk, Chunk
from worker.units.delivery import Delivery
from worker.units.table import fits, routed
from worker.units.table_book import TableBook
from worker.units.unit import Unit

log = get_logger("router")


def add_barrier(delivery: Delivery, home: Unit, statement: Chunk, others: tuple[Unit, ...]) -> None:
    """Add the statement to the delivery, and a barrier chunk for each of the other tables."""
    statement.barrier = barrier = Barrier(home, others)
    delivery.add(home, statement)
    for other in others:
        delivery.add(other, BarrierChunk(statement, barrier))


def further_units(
    assignment: Assignment, record: Record, own: Unit, fault: ShownBehind | None, book: TableBook
) -> tuple[Unit, ...]:
    """The other tables that a DDL record is about, except those without a rule. `fault`: see refusal."""
    name = own.table.database, own.table.name
    _tell_capitals(assignment, record, name, book)
    named = partial(_named, _statements(assignment.format, record), own.table.database)
    others = tuple(unit for unit in _units(book, [name, *named(), *_shown(fault)]) if unit is not own)
    for unit in _units(book, named(only_read=False)) if others else ():
        _tell_not_passed_on(unit, own.table.rule.handlers, assignment, record, own.table.label)
    return others


def _tell_not_passed_on(
    unit: Unit, handlers: Collection[HandlerEntry], assignment: Assignment, record: Record, label: str
) -> None:
    """Log a statement about the table that only these `handlers` get. `label`: the table that it is of."""
    left = [entry.name for entry in unit.table.rule.handlers if not any(map(entry.is_like, handlers))]
    if left:
        log.warning(
            "statement_not_passed_on",
            table=unit.table.label,
            record_of=label,
            handlers=left,
            position=f"{assignment.partition} offset {record.offset()}",
        )


def _statements(format_: Format, record: Record) -> list[str]:
    """The statements of a DDL record that may name other tables. A truncate names only its own."""
    changes: list[Change] = []
    with suppress(Exception):  # if it cannot be decoded, the processor of its own table reports that
        getattr(format_, "ungathered", format_).decode(record, changes)
    return [change.sql or "" for change in changes if change.op == "ddl"]


def _named(statements: Iterable[str], database: str, *, only_read: bool = True) -> list[tuple[str, str]]:
    """The (database, table) of each table that the statements name; see `tables_of`."""
    return [name for sql in statements for name in tables_of(sql, database, only_read=only_read)]


def _tell_capitals(assignment: Assignment, record: Record, name: tuple[str, str], book: TableBook) -> None:
    """Log a statement that may be about another table: the one that has this name in lower case."""
    unit = book.units.get(lowered(name[0]), {}).get(lowered(name[1]))
    if unit is None or unit.table.label == ".".join(name):
        return
    if unit.incoming or unit.records or unit.finished_in_all:
        log.error(
            "statement_in_capitals",
            table=".".join(name),
            rows_of=unit.table.label,
            position=f"{assignment.partition} offset {record.offset()}",
            hint="if the source ignores the case of names, apply the statement to the targets by hand",
        )


def _units(book: TableBook, names: Iterable[tuple[str, str]]) -> list[Unit]:
    """The units of these (database, table), each once. If the database is unknown, those of this table in all
    databases. Names that no table can have are left out, because they have no records to wait for."""
    found: dict[Unit | None, None] = {}
    for database, table in _handled(book.configuration, names):
        if fits(database) and fits(table):
            known = (tables.get(table) for tables in list(book.units.values()))
            found.update(dict.fromkeys([book.meet(database, table)] if database else known))
    return [unit for unit in found if unit is not None]


def _handled(configuration: Configuration, names: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The names under which these tables are handled, also in lower case. Servers that ignore case log a
    statement as it was spelled, but rows under names in lower case."""
    spelled = (one for name in names for one in (name, (lowered(name[0]), lowered(name[1]))))
    return itertools.starmap(Places(configuration.databases).placed, spelled)


def may_name(format_: Format, record: Record, database: str, own: str, given: Configuration) -> bool:
    """Whether a statement of this database may name the table `own`. Only then does a gathered one matter: it
    is not followed, but rows after it may show what rules hide."""
    named = _named(_statements(format_, record), database) if database in given.databases else None
    return named is None or own in map(".".join, _handled(given, named))


def concerned_unit(
    assignment: Assignment, record: Record, fault: ShownBehind | None, book: TableBook
) -> Unit | None:
    """The table that a statement about a name concerns although no rule matches the name. None: no table.

    Its rows may show what rules hide from now on, so it stops. Or the statement also changes it, as `RENAME
    TABLE orders TO old` and `DROP TABLE tmp, orders` do. `fault`: see refusal."""
    with suppress(UndecodableRecord):
        own = routed(assignment.format, record)
        if not isinstance(own, Skip | Apart):
            _tell_capitals(assignment, record, (own.database, own.table), book)
            stopped = _shown(fault)
            for unit in _units(book, [(own.database, own.table), *stopped]) if stopped else ():
                return unit
            named = partial(_named, _statements(assignment.format, record), only_read=False)
            names = named(own.database)
            units = _units(book, [name for name in names if name[0]])
            # The handler reads names without a database as names in the unit's own.
            for unit in units:
                if named(unit.table.database) == names:
                    return unit
            for unit in _units(book, names):
                _tell_not_passed_on(unit, (), assignment, record, f"{own.database}.{own.table}")
    return None


def refusal(format_: Format, record: Record) -> ShownBehind | None:
    """Why column rules refuse a statement. None: later rows show nothing that is hidden."""
    with suppress(Exception):  # the processor of its own table reports all others
        try:
            getattr(format_, "guarded", format_).decode(record, [])
        except ShownBehind as fault:
            return fault
    return None


def _shown(fault: ShownBehind | None) -> list[tuple[str, str]]:
    """The (database, table) of each table whose rows may show what is hidden after the refused statement, and
    of those that it may replace."""
    return [
        (one.database, name)
        for one in (() if fault is None else fault.tables)
        for name in (one.table, *replaced_by(one.table), *replaced_by(lowered(one.table)))
    ]


def shows(fault: ShownBehind, own: str, given: Configuration) -> bool:
    """Whether rows of the table `own` may show what rules hide after the refused statement."""
    names = map(".".join, _handled(given, _shown(fault)))
    return any(own == name or (name.startswith(".") and own.endswith(name)) for name in names)
