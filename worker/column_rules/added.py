"""Columns that the source does not have: the time or origin of a change, or a constant."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from handlers import Change


class Added(NamedTuple):
    type: str
    """The type text, as in `Change.types`."""
    value: Callable[[Change, str, str], Any]
    """Returns the value for a change, its database and its table."""
    is_constant: bool
    """Whether the value is the same in all rows. Rows without a key can then be found by it too."""


def added_of(what: Any) -> Added:
    """Return an added column. `what`: one of WORDS, or {"value": ...}."""
    if isinstance(what, dict):
        constant = what["value"]
        return Added(_type_of(constant), lambda _change, _database, _table: constant, True)
    return _ADDED[what]


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "varchar(255)" if len(value) <= 255 else "longtext"
    return "bigint" if isinstance(value, int) else "double"


def moment(milliseconds: int) -> datetime:
    """Convert a source time to UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


_ADDED = {
    "now()": Added("timestamp(6)", lambda *_: datetime.now(UTC), False),
    "source_time": Added("timestamp(6)", lambda change, *_: moment(change.source_time_ms), False),
    "topic": Added("varchar(255)", lambda change, *_: change.topic, False),
    "partition": Added("int", lambda change, *_: change.partition, False),
    "offset": Added("bigint", lambda change, *_: change.offset, False),
    "op": Added("varchar(16)", lambda change, *_: change.op, False),
    "database": Added("varchar(255)", lambda _change, database, _table: database, True),
    "table": Added("varchar(255)", lambda _change, _database, table: table, True),
    "transaction": Added("varchar(255)", lambda change, *_: change.transaction, False),
}
WORDS = tuple(_ADDED)
