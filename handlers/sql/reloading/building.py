"""Where a reload builds: a table and marks that no other one has, and what dead ones have left of theirs.

Their names end alike, with digits drawn anew each time. A reload that has lost its lock without knowing may
go on beside the next one: in the same table each would pass over what the other had begun."""

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
    """The new table of a reload, and under which handler's name its marks are."""

    table: TableName
    handler: str

    @classmethod
    def of(cls, target: TableName, handler: str, own: str | None = None) -> Building:
        """`own`: what it is told apart by; None: digits of its own."""
        own = own or secrets.token_hex(_DIGITS // 2)
        schema, table = target
        return cls((schema, _table_beginning(table) + own), _handler_beginning(handler) + own)

    def remove(self, connection: sa.Connection, marks: TableMarks) -> None:
        """The table, and then the marks, by which it is found until it is gone."""
        schema, name = self.table
        with connection.begin():
            table = sa.Table(exact(name), sa.MetaData(), schema=None if schema is None else exact(schema))
            table.drop(connection, checkfirst=True)
        with connection.begin():
            marks.remove(connection, self.handler)


def remove_left(connection: sa.Connection, marks: TableMarks, target: TableName, handler: str) -> None:
    """All that reloads of the target's table have left, by their marks: a table that only has such a name is
    none of theirs. To be called while no other reload goes on."""
    beginning = _handler_beginning(handler)
    with connection.begin():
        handlers = marks.handlers(connection, beginning)
    for own in (name.removeprefix(beginning) for name in handlers):
        if _OWN.fullmatch(own):
            Building.of(target, handler, own).remove(connection, marks)


def _table_beginning(table: str) -> str:
    """One for each, and none that a database would cut."""
    size = _LONGEST_TABLE - len(_OF_TABLE) - _DIGITS
    if len(table.encode()) > size:
        digest = sha256(table.encode()).hexdigest()[:8]
        table = table.encode()[: size - len(digest)].decode(errors="ignore") + digest
    return table + _OF_TABLE


def _handler_beginning(handler: str) -> str:
    """As the marks have room for."""
    size = _LONGEST_HANDLER - len(_OF_HANDLER) - _DIGITS
    if len(handler) > size:
        digest = sha256(handler.encode()).hexdigest()[:8]
        handler = handler[: size - len(digest)] + digest
    return handler + _OF_HANDLER
