"""Which tables a DDL statement is about."""

from __future__ import annotations

import re

from handlers.mysql_ddl import CreateTable, RenameTable, StatementError, TableName, parse

__all__ = ["tables_of"]

_NAMES_OTHERS = re.compile(r"\b(?:rename|like)\b|\bdrop\b[^;]*,", re.IGNORECASE)


def tables_of(sql: str, database: str) -> list[tuple[str, str]]:
    """The (database, table) of each table that the statement creates, changes, renames or reads: for a rename
    the old and the new names, for CREATE TABLE … LIKE the source, too. Each once, in the statement's order.

    An empty database stands for any: the statement ran in a database that its record does not name (of
    `ALTER TABLE a RENAME TO shop.a` most tools say only `shop`).

    `database`: the database that the record names. Empty where the statement is about its own table alone or
    about none, or cannot be read. Never raises.
    """
    if not _NAMES_OTHERS.search(sql):
        return []
    try:
        operations = parse(sql, database)
    except StatementError:
        return []
    found: dict[TableName, None] = {}
    for operation in operations:
        found[operation.table] = None
        if isinstance(operation, RenameTable):
            found[operation.to] = None
        elif isinstance(operation, CreateTable) and operation.like is not None:
            found[operation.like] = None
    return [(name.database, name.table) for name in found]
