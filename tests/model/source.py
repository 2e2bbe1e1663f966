"""A source table that changes, and the events of its log. Nothing here knows of formats or targets."""

from __future__ import annotations

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
    """Of an update: the columns that the statement set."""
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
            case "snapshot":
                yield from (Event("snapshot", after=dict(row)) for row in self.rows.values())
            case "sweep":
                new = {name: value for name, value in row.items() if name not in self.key}
                for old in list(self.rows.values()):
                    yield self._update(old, new)
            case "replace":
                yield from self._run(Step("delete", step.number))
                yield from self._put(row)
            case _ if self.rows:
                yield from self._one(step.kind, row, list(self.rows.values())[step.number % len(self.rows)])

    def _add(self) -> Iterator[Event]:
        for name in ADDED:
            if name not in self.columns:
                self.columns.append(name)
                self.rows = {key: {**row, name: None} for key, row in self.rows.items()}
                yield Event("alter")
                return

    def _put(self, row: Row) -> Iterator[Event]:
        whole = {**dict.fromkeys(self.columns), **row}
        old = self.rows.get(key_of(whole, self.key))
        if old is None:
            self.rows[key_of(whole, self.key)] = whole
            yield Event("insert", after=dict(whole))
        else:
            yield self._update(old, whole)

    def _one(self, kind: str, row: Row, old: Row) -> Iterator[Event]:
        if kind == "delete":
            del self.rows[key_of(old, self.key)]
            yield Event("delete", before=dict(old))
        elif kind == "change":
            yield self._update(old, {name: value for name, value in row.items() if name not in self.key})
        elif key_of({**old, **row}, self.key) not in self.rows:
            del self.rows[key_of(old, self.key)]
            yield self._update(old, row)

    def _update(self, old: Row, new: Row) -> Event:
        after = {**old, **new}
        self.rows[key_of(after, self.key)] = after
        changed = frozenset(name for name in new if old[name] != after[name])
        return Event("update", dict(old), dict(after), changed)
