"""Parser of MySQL and MariaDB DDL. The import is cheap: the first statement loads the parser."""

from __future__ import annotations

from handlers.mysql.ddl.operations import (
    ANY_DATABASE,
    AddColumn,
    ChangeKey,
    Column,
    CreateTable,
    Default,
    DropColumn,
    DropTable,
    LoseRows,
    ModifyColumn,
    Operation,
    RenameColumn,
    RenameTable,
    StatementError,
    TableName,
    TruncateTable,
    quoted,
)

__all__ = [
    "ANY_DATABASE",
    "AddColumn",
    "ChangeKey",
    "Column",
    "CreateTable",
    "Default",
    "DropColumn",
    "DropTable",
    "LoseRows",
    "ModifyColumn",
    "Operation",
    "RenameColumn",
    "RenameTable",
    "StatementError",
    "TableName",
    "TruncateTable",
    "parse",
    "qualified",
    "quoted",
]


def parse(sql: str, database: str) -> list[Operation]:
    """Return a statement's operations in the order to apply them. Empty if it changes no table's columns,
    key or rows (indexes, comments, engines, views, users, whole databases).

    `database`: the database of unqualified names, according to the statement's record. The record names the
    database of the affected table. The statement may have run in another one. So an existing table without
    a database is in ANY_DATABASE if the statement names `database` for another table
    (`ALTER TABLE a RENAME TO shop.a`, of `shop`).

    Raises StatementError if it cannot be read."""
    from handlers.mysql.ddl.statements import read  # noqa: PLC0415 - sqlglot is slow to import

    try:
        return read(sql, database)
    except StatementError:
        raise
    except Exception as error:  # a bug of the parser, which must not reach the caller as such
        raise StatementError(f"not readable ({type(error).__name__}: {error})") from error


def qualified(sql: str, database: str) -> str:
    """Add the database's name to the table of an ALTER TABLE, if it has none. Other statements, and
    unreadable ones, stay unchanged."""
    from handlers.mysql.ddl.statements import qualify  # noqa: PLC0415 - sqlglot is slow to import

    return qualify(sql, database)
