"""Name the table and marks in which a reload builds, and remove those that dead reloads have left.

Both names end with the same digits, which are random for each reload. A reload that has lost its lock
unnoticed may run beside the next one. In one table each would skip changes that the other had applied."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from hashlib import sha256

import sqlalchemy as sa

from handlers.sql.naming import exact
from handlers.sql.reloading.table_marks import TableMarks
from handlers.sql.target.known_tables import TableName

_DIGITS = 8
_OF_TABLE, _LONGEST_TABLE = "__binlane_reload_", 63
_OF_HANDLER, _LONGEST_HANDLER = "~reload_", 100
_OWN = re.compile(f"[0-9a-f]{{{_DIGITS}}}")


@dataclass(frozen=True, slots=True)
class Building:
    """The new table of a reload, and the handler's name of its marks."""

    table: TableName
    handler: str

    @classmethod
    def of(cls, target: TableName, handler: str, own: str | None = None) -> Building:
        """`own` are the digits that identify the reload; None draws random ones."""
        own = own or secrets.token_hex(_DIGITS // 2)
        schema, table = target
        return cls((schema, _table_beginning(table) + own), _handler_beginning(handler) + own)

    def remove(self, connection: sa.Connection, marks: TableMarks) -> None:
        """Drop the table first and then the marks, by which a later reload finds the table."""
        schema, name = self.table
        with connection.begin():
            table = sa.Table(exact(name), sa.MetaData(), schema=None if schema is None else exact(schema))
            table.drop(connection, checkfirst=True)
        with connection.begin():
            marks.remove(connection, self.handler)


def remove_left(connection: sa.Connection, marks: TableMarks, target: TableName, handler: str) -> None:
    """Remove the tables and marks that reloads of the target's table have left. Their marks identify them: a
    table with only such a name stays. Call it while no other reload runs."""
    beginning = _handler_beginning(handler)
    with connection.begin():
        handlers = marks.handlers(connection, beginning)
    for own in (name.removeprefix(beginning) for name in handlers):
        if _OWN.fullmatch(own):
            Building.of(target, handler, own).remove(connection, marks)


def _table_beginning(table: str) -> str:
    """Return a prefix that is unique for the table and that no database would cut."""
    size = _LONGEST_TABLE - len(_OF_TABLE) - _DIGITS
    if len(table.encode()) > size:
        digest = sha256(table.encode()).hexdigest()[:8]
        table = table.encode()[: size - len(digest)].decode(errors="ignore") + digest
    return table + _OF_TABLE


def _handler_beginning(handler: str) -> str:
    """Return a prefix that is short enough for the column of the marks."""
    size = _LONGEST_HANDLER - len(_OF_HANDLER) - _DIGITS
    if len(handler) > size:
        digest = sha256(handler.encode()).hexdigest()[:8]
        handler = handler[: size - len(digest)] + digest
    return handler + _OF_HANDLER
