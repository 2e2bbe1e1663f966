"""The binlog positions of Maxwell's records, and the table definitions at these positions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import msgspec

from worker.formats.interface import LogPosition, Record
from worker.formats.json_values import READ_ERRORS
from worker.formats.maxwell.rows import Header
from worker.formats.maxwell.tables import MaxwellTable, definition_of, template_of
from worker.formats.table_history import TableDefinition, TableHistory

ROW_TYPES = frozenset(("insert", "update", "delete", "bootstrap-insert"))
TABLE_DDL = frozenset(("table-create", "table-alter", "table-drop"))
DATABASE_DDL = frozenset(("database-create", "database-alter", "database-drop"))
_STREAM = "maxwell"
_BEGINNING = (0,)
_POSITION = re.compile(r"(?:.*\.)?(\d{1,18}):(\d{1,18})", re.ASCII | re.DOTALL)


class Statement(Header, gc=False):
    """A record of the DDL topic."""

    sql: str = ""
    after: MaxwellTable | None = msgspec.field(name="def", default=None)
    before: MaxwellTable | None = msgspec.field(name="old", default=None)

    @property
    def name_before(self) -> tuple[str, str]:
        """(database, table) before the statement."""
        before = self.before
        return (self.database, self.table) if before is None else (before.database, before.table)

    @property
    def name_after(self) -> tuple[str, str]:
        """(database, table) after the statement."""
        after = self.after
        return (self.database, self.table) if after is None else (after.database, after.table)


class _Logged(msgspec.Struct, gc=False):
    """The fields with a record's position in the log."""

    type: str
    position: str | None = None


_read_logged = msgspec.json.Decoder(_Logged).decode
read_statement = msgspec.json.Decoder(Statement).decode


def log_position_of(record: Record) -> LogPosition | None:
    """The record's binlog position. Without one, as in rows of a bootstrap, Kafka's time is used."""
    try:
        found = _read_logged(record.value() or b"")
    except READ_ERRORS:
        return None
    if found.type in ROW_TYPES:
        return LogPosition(_STREAM, _order_of(found.position), barrier=False)
    if found.type in TABLE_DDL or found.type in DATABASE_DDL:
        return LogPosition(_STREAM, _order_of(found.position), barrier=True)
    return None


class MaxwellHistory:
    """The table definitions of the DDL topic. One thread adds definitions, other threads read them."""

    def __init__(self) -> None:
        self._tables = TableHistory()
        self._learned: set[tuple[str, int, int]] = set()

    def learn(self, record: Record) -> None:
        """Remember the definitions of a DDL record, if it contains any. Ignores a record already learned."""
        place = (record.topic(), record.partition(), record.offset())
        if place in self._learned:
            return
        try:
            statement = read_statement(record.value() or b"")
            if statement.type in TABLE_DDL:
                for clock, order in _clocks(statement, record):
                    self._learn(clock, order, statement)
                self._learned.add(place)
        except READ_ERRORS:
            return

    def find(self, row: Header, record: Record) -> TableDefinition | None:
        """The definition of the row's table at the row's position, or None if it is unknown."""
        if not self._learned:
            return None
        order = _order_of(row.position)
        clock = "position"
        if not order:
            clock, order = next(_clocks(row, record))
        return self._tables.find(clock, row.database, row.table, order)

    def _learn(self, clock: str, order: tuple[int, ...], statement: Statement) -> None:
        find, learn = self._tables.find, self._tables.learn
        old, new = statement.name_before, statement.name_after
        if statement.type == "table-drop":
            learn(clock, *old, order, None)
            return
        if statement.after is None:
            return
        if statement.type == "table-create":
            template = template_of(statement.database, statement.sql)
            before = find(clock, *template, order) if template else None
        else:
            before = find(clock, *old, order)
            if before is None and statement.before is not None:
                # The table is older than the topic and had this definition until now.
                before = definition_of(statement.before, "", None)
                learn(clock, *old, _BEGINNING, before)
            if old != new:
                learn(clock, *old, order, None)
        learn(clock, *new, order, definition_of(statement.after, statement.sql, before))


def _clocks(header: Header, record: Record) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield (clock, order) pairs that order the record among the definitions, the best first. Rows of a
    bootstrap have no position, and Maxwell's configuration decides which fields it writes."""
    order = _order_of(header.position)
    if order:
        yield "position", order
    if header.schema_id is not None:
        yield "schema", (header.schema_id,)
    yield "time", (record.timestamp()[1],)


@lru_cache(maxsize=1024)
def _order_of(position: str | None) -> tuple[int, ...]:
    """(number of the binlog file, position) of `mysql-bin.000001:28867`. Empty for any other text."""
    found = _POSITION.fullmatch(position or "")
    return (int(found[1]), int(found[2])) if found else ()
