"""Cases that decide whether a replica is exact, as Canal flat JSON, and the model of the final rows.

Every case is one table. Its records arrive in two rounds. A record's sequence is its place in the source's
log. In some cases records arrive twice, or in another order. The model applies them in the source's order.
Each round ends with a row that is newer than all others. If a table shows it, the round is complete.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.spark.feed import BACKLOG_TIME
from benchmarks.spark.load import DATABASE, Record

__all__ = ["CASES", "COLUMNS", "Arrival", "Case", "Difference", "arrivals", "compare", "model"]

COLUMNS = {"id": "bigint", "name": "varchar(64)", "qty": "int"}
_ADDED = "extra"
_ADDED_TYPE = "varchar(20)"
_ADD_COLUMN = f"ALTER TABLE `{{}}` ADD COLUMN `{_ADDED}` {_ADDED_TYPE}"
_SQL_TYPES = {"bigint": -5, "int": 4, "varchar(64)": 12, _ADDED_TYPE: 12}  # java.sql.Types
_ROWS = 100
_KEY = "id"

Row = dict[str, Any]


@dataclass(frozen=True)
class _Change:
    sequence: int
    kind: str
    """INSERT, UPDATE, DELETE or ALTER."""
    row: Row = field(default_factory=dict)
    old_key: int | None = None
    """An update's key before it, if it changed."""

    @property
    def key(self) -> int:
        return int(self.row[_KEY])


@dataclass(frozen=True)
class Case:
    table: str
    title: str
    rounds: tuple[tuple[_Change, ...], tuple[_Change, ...]]
    """The changes in the order of their arrival."""


@dataclass(frozen=True)
class Difference:
    """Number of rows of a table that differ from the model."""

    wrong: int
    missing: int
    extra: int

    def __str__(self) -> str:
        found = [f"{count} {name}" for name, count in vars(self).items() if count]
        return ", ".join(found) or "exact"


@dataclass(frozen=True)
class Arrival:
    """One record. Its number counts all arrivals and is the offset in a topic of one partition."""

    record: Record
    sequence: int
    is_row: bool


class _Source:
    """Number the changes in the order of the source's log."""

    def __init__(self) -> None:
        self._next = 1

    def insert(self, keys: Iterable[int], **more: Any) -> list[_Change]:
        return [self._change("INSERT", key, more) for key in keys]

    def update(self, keys: Iterable[int], **more: Any) -> list[_Change]:
        return [self._change("UPDATE", key, more) for key in keys]

    def delete(self, keys: Iterable[int]) -> list[_Change]:
        return [self._change("DELETE", key, {}) for key in keys]

    def move(self, keys: Iterable[int], by: int) -> list[_Change]:
        return [replace(self._change("UPDATE", key + by, {}), old_key=key) for key in keys]

    def alter(self) -> list[_Change]:
        return [replace(self._change("ALTER", 0, {}), row={})]

    def _change(self, kind: str, key: int, more: Mapping[str, Any]) -> _Change:
        number = self._next
        self._next += 1
        return _Change(number, kind, {_KEY: key, "name": f"row {key} by {number}", "qty": number, **more})


def _two_rounds(
    table: str, title: str, source: _Source, first: Sequence[_Change], second: Sequence[_Change]
) -> Case:
    """Add the row that ends each round. It is newer than all others."""
    return Case(table, title, ((*first, *source.insert([0])), (*second, *source.update([0]))))


def _duplicates() -> Case:
    source = _Source()
    first = source.insert(range(1, _ROWS + 1)) + source.update(range(1, 51)) + source.delete(range(91, 101))
    first += source.insert(range(91, 96))
    return _two_rounds(
        "duplicates",
        "the last 60 changes arrive twice",
        source,
        first,
        first[-60:] + source.update(range(1, 21)),
    )


def _late() -> Case:
    source = _Source()
    inserts = source.insert(range(1, _ROWS + 1))
    older, newer = source.update(range(1, 41)), source.update(range(1, 41))
    before, deletes = source.update(range(91, 101)), source.delete(range(91, 101))
    return _two_rounds(
        "late",
        "40 updates arrive after a newer one, 10 after the delete",
        source,
        inserts + newer[:20] + older[:20] + newer[20:] + deletes,
        older[20:] + before,
    )


def _deleted() -> Case:
    source = _Source()
    first = source.insert(range(1, _ROWS + 1)) + source.delete(range(1, 41)) + source.insert(range(1, 21))
    second = source.insert(range(21, 41)) + source.delete(range(1, 11)) + source.insert(range(1, 6))
    return _two_rounds("deleted", "rows are deleted, then inserted again", source, first, second)


def _added() -> Case:
    source = _Source()
    first = source.insert(range(1, _ROWS + 1))
    second = source.alter() + source.insert(range(101, 121), **{_ADDED: "new"})
    second += source.update(range(1, 21), **{_ADDED: "set"})
    return _two_rounds("added", "ADD COLUMN, then 40 rows have values in it", source, first, second)


def _moved() -> Case:
    source = _Source()
    first = source.insert(range(1, _ROWS + 1))
    second = source.move(range(1, 11), by=1_000) + source.update(range(1_001, 1_006))
    return _two_rounds("moved", "10 keys change, each by one update record", source, first, second)


def _moved_apart() -> Case:
    source = _Source()
    first = source.insert(range(1, _ROWS + 1))
    second = [
        change for key in range(1, 11) for change in (source.delete([key]) + source.insert([key + 1_000]))
    ]
    title = "10 keys change, each by a delete and an insert"
    return _two_rounds("moved_apart", title, source, first, second)


CASES = (_duplicates(), _late(), _deleted(), _added(), _moved(), _moved_apart())


def arrivals(round_: int, begin: int = 0) -> list[Arrival]:
    """Return all cases' records of a round. `begin` is the number of records before."""
    found: list[Arrival] = []
    for table, case in enumerate(CASES):
        for change in case.rounds[round_]:
            record = Record(begin + len(found), table, _canal(case.table, change))
            found.append(Arrival(record, change.sequence, change.kind != "ALTER"))
    return found


def model(case: Case) -> dict[int, Row]:
    """Return the final rows by key: each change once, in the source's order."""
    rows: dict[int, Row] = {}
    once = {change.sequence: change for changes in case.rounds for change in changes}
    for _, change in sorted(once.items()):
        if change.kind == "DELETE":
            del rows[change.key]
        elif change.kind != "ALTER":
            if change.old_key is not None:
                del rows[change.old_key]
            rows[change.key] = change.row
    return rows


def compare(expected: Mapping[int, Row], found: Sequence[Row]) -> Difference:
    """Compare the found rows with the model. A missing value is None. Only the source's columns count."""
    names = [*COLUMNS, _ADDED]
    by_key = {row[_KEY]: row for row in found}
    wrong = sum(
        any(row.get(name) != by_key[key].get(name) for name in names)
        for key, row in expected.items()
        if key in by_key
    )
    extra = len(found) - len(by_key) + len(by_key.keys() - expected.keys())
    return Difference(wrong, len(expected.keys() - by_key.keys()), extra)


def _canal(table: str, change: _Change) -> bytes:
    kinds = COLUMNS | ({_ADDED: _ADDED_TYPE} if _ADDED in change.row else {})
    is_ddl = change.kind == "ALTER"
    row = {name: str(value) for name, value in change.row.items()}
    old = None if change.old_key is None else [{_KEY: str(change.old_key)}]
    if change.kind == "UPDATE" and old is None:
        old = [{"qty": "0"}]
    message = {
        "id": change.sequence,
        "database": DATABASE,
        "table": table,
        "pkNames": None if is_ddl else [_KEY],
        "isDdl": is_ddl,
        "type": change.kind,
        "es": BACKLOG_TIME + change.sequence,
        "ts": BACKLOG_TIME + change.sequence,
        "sql": _ADD_COLUMN.format(table) if is_ddl else "",
        "sqlType": None if is_ddl else {name: _SQL_TYPES[kind] for name, kind in kinds.items()},
        "mysqlType": None if is_ddl else kinds,
        "data": None if is_ddl else [row],
        "old": old,
    }
    return json.dumps(message, separators=(",", ":")).encode()
