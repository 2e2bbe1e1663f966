"""A source table that changes, and the events of its log. Nothing here knows of formats or targets."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from hypothesis import strategies as st

__all__ = ["COLUMNS", "KEYS", "LARGE", "Event", "Row", "Source", "Step", "key_of", "steps"]

Row = dict[str, Any]
Key = tuple[Any, ...]

COLUMNS = {
    "id": "bigint",
    "region": "varchar(20)",
    "amount": "decimal(10,2)",
    "note": "varchar(40)",
    "doc": "text",
}
LARGE = "doc"
"""A value that PostgreSQL keeps apart (TOAST): its log lacks the value when an update leaves it as it is."""
KEYS: tuple[tuple[str, ...], ...] = (("id",), ("id", "region"))


@dataclass(frozen=True)
class Event:
    """What the log says of one row, or of the table."""

    op: Literal["insert", "update", "delete", "truncate", "snapshot"]
    before: Row | None = None
    after: Row | None = None
    changed: frozenset[str] = frozenset()
    """Of an update: the columns that the statement set."""


def key_of(row: Row, key: tuple[str, ...]) -> Key:
    return tuple(row[name] for name in key)


@dataclass(frozen=True)
class Step:
    """A statement; of `replace` two, a delete and an insert. `number` chooses a row that is there."""

    kind: Literal["put", "change", "move", "delete", "truncate", "snapshot", "sweep", "replace"]
    number: int = 0
    row: Row | None = None

    def __repr__(self) -> str:
        return f"{self.kind} {self.number} {self.row or ''}".rstrip()


class Source:
    def __init__(self, key: tuple[str, ...]) -> None:
        self.key = key
        self.rows: dict[Key, Row] = {}

    def run(self, step: Step) -> Iterator[Event]:
        match step.kind:
            case "put":
                yield from self._put(dict(step.row or {}))
            case "truncate":
                self.rows.clear()
                yield Event("truncate")
            case "snapshot":
                yield from (Event("snapshot", after=dict(row)) for row in self.rows.values())
            case "sweep":
                new = {name: value for name, value in (step.row or {}).items() if name == "note"}
                for row in list(self.rows.values()):
                    yield self._update(row, new)
            case "replace":
                yield from self.run(Step("delete", step.number))
                yield from self._put(dict(step.row or {}))
            case _ if self.rows:
                yield from self._one(step, list(self.rows.values())[step.number % len(self.rows)])

    def _put(self, row: Row) -> Iterator[Event]:
        whole = {**dict.fromkeys(COLUMNS), **row}
        old = self.rows.get(key_of(whole, self.key))
        if old is None:
            self.rows[key_of(whole, self.key)] = whole
            yield Event("insert", after=dict(whole))
        else:
            yield self._update(old, whole)

    def _one(self, step: Step, old: Row) -> Iterator[Event]:
        row = dict(step.row or {})
        if step.kind == "delete":
            del self.rows[key_of(old, self.key)]
            yield Event("delete", before=dict(old))
        elif step.kind == "change":
            new = {name: value for name, value in row.items() if name not in self.key}
            yield self._update(old, new)
        elif key_of({**old, **row}, self.key) not in self.rows:
            del self.rows[key_of(old, self.key)]
            yield self._update(old, row)

    def _update(self, old: Row, new: Row) -> Event:
        after = {**old, **new}
        self.rows[key_of(after, self.key)] = after
        changed = frozenset(name for name in new if old[name] != after[name])
        return Event("update", dict(old), dict(after), changed)


_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "id": st.integers(1, 4),
    "region": st.sampled_from(("north", "south")),
    "amount": st.sampled_from((None, Decimal("1.50"), Decimal("20.25"))),
    "note": st.sampled_from((None, "", "a", "b")),
    "doc": st.sampled_from((None, "long one", "long two")),
}
_KEY_COLUMNS = {name for key in KEYS for name in key}


def _rows(*needed: str, whole: bool = False) -> st.SearchStrategy[Row]:
    """`whole`: of all columns, else of those that are needed and perhaps some others."""
    first = {name: _VALUES[name] for name in (_VALUES if whole else needed)}
    others = {} if whole else {name: value for name, value in _VALUES.items() if name not in needed}
    return st.fixed_dictionaries(first, optional=others)


_NUMBERS = st.integers(0, 2)
_PUTS = st.builds(Step, st.just("put"), row=_rows(whole=True))
_CHANGED = st.one_of(*(_rows(name) for name in ("amount", "note", "region", "doc")))
_STEPS = st.one_of(
    st.builds(Step, st.just("change"), _NUMBERS, _CHANGED),
    st.builds(Step, st.just("move"), _NUMBERS, _rows("id")),
    _PUTS,
    st.builds(Step, st.just("put"), row=_rows(*sorted(_KEY_COLUMNS))),
    st.builds(Step, st.just("delete"), _NUMBERS),
    st.builds(Step, st.just("replace"), _NUMBERS, _rows(whole=True)),
    st.builds(Step, st.just("sweep"), row=_rows("note")),
    st.builds(Step, st.sampled_from(("snapshot", "truncate"))),
)


def steps(most: int, rounds: int) -> st.SearchStrategy[list[Step]]:
    """Some rows, and what happens to them: `rounds` lists, each of a few steps as a rule."""
    begun = st.lists(_PUTS, min_size=1, max_size=2)
    more = [st.lists(_STEPS, max_size=most) for _ in range(rounds - 1)]
    parts = st.tuples(begun, st.lists(_STEPS, min_size=1, max_size=most), *more)
    return parts.map(lambda lists: list(itertools.chain.from_iterable(lists)))
