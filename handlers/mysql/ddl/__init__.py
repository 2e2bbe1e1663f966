"""Reads DDL of MySQL and MariaDB. Importing it is cheap: the parser is loaded with the first statement."""

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
    """What the statement does, in the order in which to do it; nothing for one that changes no table's
    columns, key or rows (indexes, comments, engines, views, users, whole databases).

    `database`: where names without one belong, as the statement's record says. A record names the database of
    the table that the statement is about, which need not be the one in which it ran: a table that was there
    before and is named without a database is in ANY_DATABASE when the statement itself names `database` for
    another table (`ALTER TABLE a RENAME TO shop.a`, of `shop`).

    Raises StatementError for what it cannot read."""
    from handlers.mysql.ddl.statements import read  # noqa: PLC0415 - sqlglot takes its time

    try:
        return read(sql, database)
    except StatementError:
        raise
    except Exception as error:  # any other is a fault of the reading, which must not be the caller's
        raise StatementError(f"not readable ({type(error).__name__}: {error})") from error


def qualified(sql: str, database: str) -> str:
    """The ALTER TABLE with the name of its table's database, where it has none. Other statements, and what
    cannot be read, stay as they are."""
    from handlers.mysql.ddl.statements import qualify  # noqa: PLC0415 - sqlglot takes its time

    return qualify(sql, database)
