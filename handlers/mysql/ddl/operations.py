"""What a DDL statement does to tables, columns and keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class StatementError(ValueError):
    """The statement cannot be read; the message says where."""


ANY_DATABASE = ""
"""The database of a table that a statement leaves open: it ran in one that its record does not name."""


class TableName(NamedTuple):
    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


@dataclass(frozen=True, slots=True)
class Default:
    """What follows DEFAULT."""

    kind: str
    """`text` ('…'), `number`, `bits` (b'01'), `bytes` (x'ff'), `null`, `now` (CURRENT_TIMESTAMP and its
    synonyms) or `expression` (anything else)."""
    text: str
    """Without its quotes and escapes; a number with its sign; of an expression, the source's own text."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column definition."""

    name: str
    type: str
    """In the spelling of `Change.types`: lower case, without character set: `decimal(12,2)`,
    `bigint unsigned`, `enum('a','b')`."""
    nullable: bool = True
    default: Default | None = None
    generated: str | None = None
    """The expression of a generated column, in the source's dialect."""
    numbered: bool = False
    """AUTO_INCREMENT: rows that are there already are numbered."""


@dataclass(frozen=True, slots=True)
class CreateTable:
    table: TableName
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """The primary key; of a table without one, its first unique key whose columns are all NOT NULL; empty:
    it has neither."""
    like: TableName | None = None
    """`CREATE TABLE … LIKE`: the table that it copies, without rows; there are no columns here then."""


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
    """The column that it stands behind; empty: it is the first; None: the statement does not say."""


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
    """As of AddColumn: where it moves to; None: it stays where it is."""


@dataclass(frozen=True, slots=True)
class ChangeKey:
    table: TableName
    columns: tuple[str, ...]
    """The new primary key; empty: there is none any more."""


@dataclass(frozen=True, slots=True)
class LoseRows:
    """Rows come or go without an event for each: partitions are emptied, dropped, exchanged."""

    table: TableName
    clause: str
    """As the statement spells it."""


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
    """The parts of a name as MySQL writes them.

    >>> quoted("shop", "orders")
    '`shop`.`orders`'
    """
    return ".".join(f"`{name.replace('`', '``')}`" for name in names)
