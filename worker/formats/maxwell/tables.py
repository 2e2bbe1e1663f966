"""Table definitions from Maxwell's DDL records.

A record's `def` has the columns' types, but most without a size (`decimal`, `binary`, `varchar`). The sizes
are read from the statement, or from the definition before it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from handlers.mysql import ddl
from handlers.mysql.types import INTEGERS, MySQLType, read_type
from worker.formats.table_history import TableDefinition


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
        return f"{name}({','.join(map(_literal, column.labels or ()))})"
    if name in ("time", "datetime", "timestamp"):
        return f"{name}({column.fraction})" if column.fraction else name
    size, unsigned = _defined_size(name, column.name, defined) or _kept(name, before)
    if name in INTEGERS:
        unsigned = not column.signed
    return f"{name}{size} unsigned" if unsigned else f"{name}{size}"


def _literal(label: str) -> str:
    escaped = label.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


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
