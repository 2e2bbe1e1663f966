"""A source table that changes, and the events of its log. Nothing here knows of formats or targets."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal

Row = dict[str, Any]
Key = tuple[Any, ...]

COLUMNS = {
    "id": "bigint",
    "region": "varchar(20)",
    "amount": "decimal(10,2)",
    "note": "varchar(40)",
    "doc": "text",
}
"""Of a new table."""
ADDED = {"stage": "varchar(10)", "weight": "int", "memo": "varchar(30)"}
"""The columns that a table may get later, one after the other. Rows that are there have NULL in them."""
ALL_COLUMNS = COLUMNS | ADDED
LARGE = "doc"
"""A value that PostgreSQL keeps apart (TOAST): its log lacks the value when an update leaves it as it is."""
KEYS: tuple[tuple[str, ...], ...] = (("id",), ("id", "region"))
"""Of tables that have one; () is a table without a key, whose rows may be equal."""
VALUES: dict[str, tuple[Any, ...]] = {
    "region": ("north", "south"),
    "amount": (None, Decimal("1.50"), Decimal("20.25")),
    "note": (None, "", "a", "b"),
    "doc": (None, "long one", "long two"),
    "stage": (None, "new", "old"),
    "weight": (None, 0, 7),
    "memo": (None, "x", "y"),
}
"""Column -> what it may hold."""


@dataclass(frozen=True)
class Event:
    """What the log says of one row, or of the table."""

    op: Literal["insert", "update", "delete", "truncate", "snapshot", "alter"]
    before: Row | None = None
    after: Row | None = None
    changed: frozenset[str] = frozenset()
    """Of an update: the columns that have another value now."""
    named: frozenset[str] = frozenset()
    """Of an insert and an update: the columns that the statement set."""
    columns: tuple[str, ...] = ()
    """Those that the table has."""


def key_of(row: Row, key: tuple[str, ...]) -> Key:
    return tuple(row[name] for name in key)


@dataclass(frozen=True)
class Step:
    """A statement; of `replace` two, a delete and an insert. `number` chooses a row that is there. `add`: the
    table gets the next column. A row's columns that the table has not yet are passed over."""

    kind: Literal["put", "change", "move", "delete", "truncate", "snapshot", "sweep", "replace", "add"]
    number: int = 0
    row: Row | None = None

    def __repr__(self) -> str:
        return f"{self.kind} {self.number} {self.row or ''}".rstrip()


class Source:
    def __init__(self, key: tuple[str, ...]) -> None:
        self.key = key
        self.columns = list(COLUMNS)
        self.rows: dict[Key, Row] = {}
        self._numbers = itertools.count()

    def _place(self, row: Row) -> Key:
        """Of a new row among the others; without a key each has one of its own."""
        return key_of(row, self.key) if self.key else (next(self._numbers),)

    def run(self, step: Step) -> Iterator[Event]:
        for event in self._run(step):
            yield replace(event, columns=tuple(self.columns))

    def _run(self, step: Step) -> Iterator[Event]:
        row = {name: value for name, value in (step.row or {}).items() if name in self.columns}
        match step.kind:
            case "add":
                yield from self._add()
            case "put":
                yield from self._put(row)
            case "truncate":
                self.rows.clear()
                yield Event("truncate")
            case "snapshot" if not self.key:
                return  # rows that are there would come to stand twice
            case "snapshot":
                yield from (Event("snapshot", after=dict(row)) for row in self.rows.values())
            case "sweep":
                new = {name: value for name, value in row.items() if name not in self.key}
                for place in list(self.rows):
                    yield self._update(place, new)
            case "replace":
                yield from self._run(Step("delete", step.number))
                yield from self._put(row)
            case _ if self.rows:
                yield from self._one(step.kind, row, list(self.rows)[step.number % len(self.rows)])

    def _add(self) -> Iterator[Event]:
        for name in ADDED:
            if name not in self.columns:
                self.columns.append(name)
                self.rows = {key: {**row, name: None} for key, row in self.rows.items()}
                yield Event("alter")
                return

    def _put(self, row: Row) -> Iterator[Event]:
        whole = {**dict.fromkeys(self.columns), **row}
        place = self._place(whole)
        if place in self.rows:
            yield self._update(place, {name: value for name, value in whole.items() if name not in self.key})
        else:
            self.rows[place] = whole
            yield Event("insert", after=dict(whole), named=frozenset(row))

    def _one(self, kind: str, row: Row, place: Key) -> Iterator[Event]:
        if kind == "delete":
            yield Event("delete", before=self.rows.pop(place))
        elif kind == "change":
            yield self._update(place, {name: value for name, value in row.items() if name not in self.key})
        elif not self.key or key_of({**self.rows[place], **row}, self.key) not in self.rows:
            yield self._update(place, row)

    def _update(self, place: Key, new: Row) -> Event:
        old = self.rows.pop(place)
        after = {**old, **new}
        self.rows[key_of(after, self.key) if self.key else place] = after
        changed = frozenset(name for name in new if old[name] != after[name])
        return Event("update", dict(old), dict(after), changed, frozenset(new))
