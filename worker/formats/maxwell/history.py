"""The binlog positions of Maxwell's records, and the table definitions at these positions, from DDL records.

A record's `def` has the columns' types, but most without a size (`decimal`, `binary`, `varchar`). The sizes
are read from the statement, or from the definition before it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import msgspec

from handlers.mysql import ddl
from handlers.mysql.types import INTEGERS, MySQLType, literal, read_type
from worker.formats.interface import LogPosition, Record
from worker.formats.json_rows import READ_ERRORS
from worker.formats.maxwell.rows import Header
from worker.formats.table_history import TableDefinition, TableHistory


class MaxwellColumn(msgspec.Struct, gc=False):
    """A column of `def` or `old`."""

    name: str
    type: str
    signed: bool = True
    charset: str | None = None
    labels: list[str] | None = msgspec.field(name="enum-values", default=None)
    fraction: int | None = msgspec.field(name="column-length", default=None)
    """Fractional digits of a second, for time, datetime and timestamp."""


class MaxwellTable(msgspec.Struct, gc=False):
    """`def` or `old` of a DDL record."""

    database: str
    table: str
    columns: list[MaxwellColumn] = []
    primary_key: list[str] | None = msgspec.field(name="primary-key", default=None)


# Types whose size only the statement has, and their default size.
_SIZED = {
    "decimal": "(10,0)",
    "bit": "(1)",
    "char": "(1)",
    "binary": "(1)",
    "varchar": "",
    "varbinary": "",
    "tinyint": "",
}
# Text columns with the character set `binary` contain bytes.
_AS_BYTES = {
    "char": "binary",
    "varchar": "varbinary",
    "tinytext": "tinyblob",
    "text": "blob",
    "mediumtext": "mediumblob",
    "longtext": "longblob",
}


def _is_name(written: str, name: str) -> bool:
    """Compare names. Maxwell keeps a doubled backtick in a name as it is in the statement."""
    return name.lower() in (written.lower(), written.lower().replace("`", "``"))


def _operations(sql: str, database: str) -> list[ddl.Operation]:
    """The statement's operations. Empty if it cannot be parsed; then only the record's `def` counts."""
    try:
        return ddl.parse(sql, database)
    except ddl.StatementError:
        return []


def definition_of(table: MaxwellTable, sql: str, before: TableDefinition | None) -> TableDefinition:
    """The table after the statement `sql`. `before`: its previous definition, or its template's, if known."""
    operations = _operations(sql, table.database)
    defined = list(_defined_in(operations))
    types = {
        column.name: _type_text(column, defined, _type_before(column.name, operations, before))
        for column in table.columns
    }
    return TableDefinition(types, tuple(table.primary_key) if table.primary_key else None)


def _type_before(name: str, operations: list[ddl.Operation], before: TableDefinition | None) -> str | None:
    if before is None:
        return None
    for operation in reversed(operations):
        if isinstance(operation, ddl.RenameColumn) and _is_name(operation.to, name):
            name = operation.name
    return next(
        (text for column, text in before.types.items() if _is_name(name, column) or name == column), None
    )


def _defined_in(operations: list[ddl.Operation]) -> Iterator[ddl.Column]:
    """The columns that the statement defines."""
    for operation in operations:
        if isinstance(operation, ddl.CreateTable):
            yield from operation.columns
        elif isinstance(operation, ddl.AddColumn | ddl.ModifyColumn):
            yield operation.column


def template_of(database: str, sql: str) -> tuple[str, str] | None:
    """(database, table) that CREATE TABLE ... LIKE names. `database` is the default database."""
    for operation in _operations(sql, database):
        if isinstance(operation, ddl.CreateTable) and operation.like is not None:
            return operation.like.database or database, operation.like.table
    return None


def statement_for(database: str, table: str, after: MaxwellTable, sql: str) -> str:
    """The statement for one `table-alter` record. Together, all records' statements have the original effect.

    Maxwell writes a record for each table of a RENAME TABLE, with the whole statement in each. So each gets
    its own part. If a statement moves a table to another database, the table's name gets the old database."""
    if (database, table) == (after.database, after.table):
        return sql
    operations = _operations(sql, database)
    if operations and all(isinstance(one, ddl.RenameTable) for one in operations):
        return f"RENAME TABLE {ddl.quoted(database, table)} TO {ddl.quoted(after.database, after.table)}"
    return ddl.qualified(sql, database)


def _type_text(column: MaxwellColumn, defined: list[ddl.Column], before: str | None) -> str:
    name = column.type.lower()
    if column.charset == "binary":
        name = _AS_BYTES.get(name, name)
    if name in ("enum", "set"):
        return f"{name}({','.join(map(literal, column.labels or ()))})"
    if name in ("time", "datetime", "timestamp"):
        return f"{name}({column.fraction})" if column.fraction else name
    size, unsigned = _defined_size(name, column.name, defined) or _kept(name, before)
    if name in INTEGERS:
        unsigned = not column.signed
    return f"{name}{size} unsigned" if unsigned else f"{name}{size}"


def _kept(name: str, before: str | None) -> tuple[str, bool]:
    """Size and sign of a column that the statement does not change."""
    known = read_type(before or "")
    if known.name != name:
        return "", False
    return _size(known), known.unsigned


def _defined_size(name: str, column: str, defined: list[ddl.Column]) -> tuple[str, bool] | None:
    """Size and sign that the statement gives the column, if it defines it with this type."""
    if name not in _SIZED:
        return None
    for one in reversed(defined):
        known = read_type(one.type)
        if _is_name(one.name, column) and name in (known.name, _AS_BYTES.get(known.name)):
            return _size(known) or _SIZED[name], known.unsigned
    return None


def _size(known: MySQLType) -> str:
    return f"({','.join(map(str, known.sizes))})" if known.sizes else ""


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
