"""What all writers have in common."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, Protocol

from worker.formats.interface import Format, Record

from ..source import LARGE, Event, Row, key_of
from ..told import Empty, Move, One, Put, Remove, Told

Image = Literal["full", "noblob", "minimal"]
"""MySQL's binlog_row_image."""


@dataclass(frozen=True)
class Names:
    database: str
    table: str
    key: tuple[str, ...]

    def of(self, row: Row) -> Row:
        """The key's columns."""
        return {name: row[name] for name in self.key}


@dataclass(frozen=True)
class Written:
    """A record, and what it tells."""

    told: Sequence[Told]
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    teaches: Record | None = None
    """A definition that was read before it."""


class Writer(Protocol):
    """A tool with its settings."""

    @property
    def tells_old_rows(self) -> bool:
        """Whether each update and delete tells at least the old row's columns that are not large."""
        ...

    @property
    def tells_gaps(self) -> bool:
        """Whether its records show which columns a row lacks."""
        ...

    @property
    def tells_whole(self) -> bool:
        """Whether each update and delete of a table without a key tells all of the old row."""
        ...

    @property
    def moves_keys(self) -> bool:
        """Whether its records show that a row's key changed."""
        ...

    def format(self, names: Names) -> Format:
        """A reader of its records."""
        ...

    def write(self, names: Names, events: Sequence[Event]) -> Iterator[Written]:
        """`events` were read at once: some tools write them together."""
        ...


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=_text).encode()


def _text(value: Any) -> str:
    assert isinstance(value, Decimal)
    return str(value)


def logged(names: Names, event: Event, image: Image) -> tuple[Row | None, Row | None]:
    """What MySQL logs of the old row and of the new one.
    https://dev.mysql.com/doc/refman/8.4/en/replication-options-binary-log.html#sysvar_binlog_row_image

    A table without a key has the whole old row."""
    before, after = event.before, event.after
    if image == "full":
        return before, after
    if before is not None and names.key:
        before = names.of(before) if image == "minimal" else {n: v for n, v in before.items() if n != LARGE}
    if after is not None:
        after = {
            name: value
            for name, value in after.items()
            if name in event.named or (image == "noblob" and name != LARGE)
        }
    return before, after


def moves(names: Names, event: Event) -> bool:
    """Whether an update changes the row's key."""
    assert event.before is not None
    assert event.after is not None
    return key_of(event.before, names.key) != key_of(event.after, names.key)


def is_more(names: Names, row: Row) -> bool:
    """Whether an old row can be told from its key alone."""
    return any(value is not None for name, value in row.items() if name not in names.key)


def told_whole(names: Names, event: Event, *, tells_old: bool = True) -> Told:
    """What a record tells that holds all of the row, and of the old one."""
    tells_old = tells_old and (event.before is None or is_more(names, event.before))
    if event.op == "truncate":
        return Empty()
    if not names.key:
        return One(event.before, event.after)
    if event.after is None:
        return Remove(key_of(event.before or {}, names.key), tells_old)
    key = key_of(event.after, names.key)
    if event.op == "update" and moves(names, event):
        return Move(key_of(event.before or {}, names.key), key, event.after, tells_old=tells_old)
    return Put(key, event.after, event.op != "update", tells_old=tells_old)
