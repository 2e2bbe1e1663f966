"""Operations of MySQL's and MariaDB's DDL. The import is cheap: the first statement loads the parser."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class StatementError(ValueError):
    """The statement cannot be read; the message says where."""


ANY_DATABASE = ""
"""The database of a table if it is unknown: the statement ran in one that its record does not name."""


class TableName(NamedTuple):
    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


@dataclass(frozen=True, slots=True)
class Default:
    """The value after DEFAULT."""

    kind: str
    """`text` ('…'), `number`, `bits` (b'01'), `bytes` (x'ff'), `null`, `now` (CURRENT_TIMESTAMP and its
    synonyms) or `expression` (anything else)."""
    text: str
    """The text without quotes and escapes; a number with its sign; an expression as the source wrote it."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str
    """Spelled as in `Change.types`: lower case, without character set. Examples: `decimal(12,2)`,
    `bigint unsigned`, `enum('a','b')`."""
    nullable: bool = True
    default: Default | None = None
    generated: str | None = None
    """The expression of a generated column, in the source's dialect."""
    numbered: int = 0
    """AUTO_INCREMENT: existing rows get numbers from this one on. 0 for other columns."""


@dataclass(frozen=True, slots=True)
class CreateTable:
    table: TableName
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """The primary key, or the first unique key whose columns are all NOT NULL. Empty if the table has
    neither."""
    like: TableName | None = None
    """The table copied without rows by `CREATE TABLE … LIKE`. `columns` is then empty."""


@dataclass(frozen=True, slots=True)
class DropTable:
    table: TableName


@dataclass(frozen=True, slots=True)
class TruncateTable:
    table: TableName


@dataclass(frozen=True, slots=True)
class RenameTable:
    table: TableName
    to: TableName
    is_open: bool = field(default=False, compare=False)
    """The new name has no database, and the statement ran in an unknown one: `to` may be in another."""


@dataclass(frozen=True, slots=True)
class AddColumn:
    table: TableName
    column: Column
    after: str | None = None
    """The column before it; empty: it is the first column; None: the statement does not say."""


@dataclass(frozen=True, slots=True)
class DropColumn:
    table: TableName
    name: str


@dataclass(frozen=True, slots=True)
class RenameColumn:
    table: TableName
    name: str
    to: str


@dataclass(frozen=True, slots=True)
class ModifyColumn:
    """MODIFY, or what CHANGE does besides renaming."""

    table: TableName
    column: Column
    after: str | None = None
    """As in AddColumn; None: the column does not move."""


@dataclass(frozen=True, slots=True)
class ChangeKey:
    table: TableName
    columns: tuple[str, ...]
    """The new primary key; empty: the table has none any more."""


@dataclass(frozen=True, slots=True)
class LoseRows:
    """Rows appear or disappear without an event for each: a partition is emptied, dropped or exchanged."""

    table: TableName
    clause: str
    """The clause as the statement spells it."""
    other: TableName | None = field(default=None, compare=False)
    """The table that rows are exchanged with, come from or go to."""


Operation = (
    CreateTable
    | DropTable
    | TruncateTable
    | RenameTable
    | AddColumn
    | DropColumn
    | RenameColumn
    | ModifyColumn
    | ChangeKey
    | LoseRows
)


def quoted(*names: str) -> str:
    """Quote the parts of a name for MySQL.

    >>> quoted("shop", "orders")
    '`shop`.`orders`'
    """
    return ".".join(f"`{name.replace('`', '``')}`" for name in names)


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
