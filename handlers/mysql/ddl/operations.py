"""The operations of DDL statements on tables, columns and keys."""

from __future__ import annotations

from dataclasses import dataclass
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
    numbered: bool = False
    """AUTO_INCREMENT: existing rows get numbers."""


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
