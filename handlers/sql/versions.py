"""Histories: every version of each row, with its period of validity (slowly changing dimension, type 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from handlers.api import Change, Row
from handlers.rows import check_all_told
from handlers.sql import folding
from handlers.sql.ddl.versions import TAKEN
from handlers.sql.fitting import Fitting, Unfit
from handlers.sql.target.known_tables import KnownTable
from handlers.sql.writers.writer import Columns, Rows, Writer, of_current

TIME_TYPE = "datetime(3)"
"""The source type of the columns with times, which are UTC."""
_AT_ONCE = 100
"""Keys whose last versions one statement reads."""
_EPOCH = datetime(1970, 1, 1)

_Key = tuple[Any, ...]


@dataclass(slots=True)
class _Last:
    """What is known of a key."""

    at: datetime = datetime.min
    """When its last change was made."""
    is_current: bool = False
    """Whether it has a version that is valid now."""


@dataclass(frozen=True)
class Versions:
    """Writes versions instead of rows.

    Each insert, update and snapshot opens a version of its key's row at its source time, which ends the
    version before. A delete only ends it. A version is valid from its start (inclusive) to its end
    (exclusive, NULL for the current one).

    - A snapshot that equals the current version changes nothing, nor does a delete of a row without one.
    - A change whose source time is before that of its key's last change counts as made at that time.
    - A column that an update lacks keeps its value, unless the source has dropped it."""

    start: str
    end: str
    fitting: Fitting
    writer: Writer

    @property
    def columns(self) -> dict[str, str]:
        """The columns beside the source's, with their types."""
        return {self.start: TIME_TYPE, self.end: TIME_TYPE}

    def check(self, key: tuple[str, ...], changes: Sequence[Change]) -> None:
        """Raise Unfit if the source's table can have no history."""
        if not key:
            raise Unfit("the table has no primary key, and a history needs one")
        told = [changes[0].types or (), *map(_row, changes)]  # types may be only those of added columns
        names = {name.lower() for each in told for name in each}
        if names & {self.start.lower(), self.end.lower()}:
            raise Unfit(TAKEN.format(self.start, self.end))

    def apply(
        self,
        connection: sa.Connection,
        table: KnownTable,
        key: tuple[str, ...],
        changes: Sequence[Change],
    ) -> None:
        """Apply the changes of a table, which are in source order. Raises Unfit, and as the fitting."""
        work = _Work(self, connection, table, key, self._own_columns(table, key, changes), changes)
        for is_move, piece in folding.pieces(changes, key, table.is_covered_by, moves=False):
            rest = piece
            if is_move:
                rest = work.copy(*piece)
            else:
                check_all_told(piece)
            for wave in work.waves(rest):
                work.put(wave)

    def _own_columns(self, table: KnownTable, key: tuple[str, ...], changes: Sequence[Change]) -> Columns:
        if table.uniques or table.alike:
            raise Unfit(f"{table.shown} has a unique key, so it cannot hold several versions of a row")
        return self.fitting.key(table, key, changes)


@dataclass
class _Work:
    """One batch's versions in one table."""

    of: Versions
    connection: sa.Connection
    table: KnownTable
    key: tuple[str, ...]
    own: Columns
    changes: Sequence[Change]

    def __post_init__(self) -> None:
        self.start, self.end = (self.table.columns[name] for name in (self.of.start, self.of.end))
        self.sql = of_current(self.of.writer.placeholder, self.table, self.own, self.start, self.end)
        keys = list(dict.fromkeys(_key(_row(one), self.key) for one in self.changes))
        stored: dict[tuple[Any, ...], _Key] = {}
        # The target may store several spellings of a key as one.
        self.same = {
            key: stored.setdefault(one, key) for key, one in zip(keys, self._keys(keys).by_row(), strict=True)
        }
        self.last = {key: _Last() for key in stored.values()}
        self._read(list(self.last))

    def waves(self, changes: Sequence[Change]) -> list[dict[_Key, Change]]:
        """Divide the changes, so that each part has at most one of a key, and a key's are in order."""
        waves: list[dict[_Key, Change]] = []
        count: dict[_Key, int] = {}
        for change in changes:
            own = self.same[_key(_row(change), self.key)]
            place = count[own] = count.get(own, -1) + 1
            if place == len(waves):
                waves.append({})
            waves[place][own] = change
        return waves

    def put(self, wave: dict[_Key, Change]) -> None:
        """Apply one change of each of these keys."""
        known = self._known([each for each in wave.items() if each[1].op == "snapshot"])
        ended: list[tuple[_Key, datetime]] = []
        replaced: list[tuple[_Key, datetime]] = []
        new: list[Row] = []
        changed: dict[bool, list[Row]] = {}
        for key, change in wave.items():
            last = self.last[key]
            if key in known or (change.after is None and not last.is_current):
                continue
            last.at = max(last.at, _time(change))
            if change.after is None:
                ended.append((key, last.at))
                last.is_current = False
                continue
            row = {**change.after, self.of.start: last.at}
            if not last.is_current:
                new.append(row)
            else:
                replaced.append((key, last.at))
                changed.setdefault(change.is_whole, []).append(row)
            last.is_current = True
        self._at_times(self.sql.end, ended)
        self._at_times(self.sql.keep, replaced)
        for block in folding.blocks(new):
            self.of.writer.insert(self.connection, self._new(block))
        for is_whole, rows in changed.items():
            for block in folding.blocks(rows):
                fitted = self._without_others(self._fitted(block), is_whole=is_whole)
                self.of.writer.update_current(self.connection, fitted, self.own, self.end)

    def copy(self, gone: Change, made: Change) -> Sequence[Change]:
        """Open a version with another key. It has the values of the old key's version that the change lacks.
        Returns the changes that are left to apply."""
        old, new = (self.same[_key(row or {}, self.key)] for row in (gone.before, made.after))
        if old == new:  # for the target, which knows both spellings as one key
            return [made]
        left = [] if gone.op == "update" and gone.after == gone.key else [gone]
        if not self.last[old].is_current:
            return [*left, made]
        at = max(self.last[new].at, _time(made))
        if self.last[new].is_current:
            self._at_times(self.sql.end, [(new, at)])
        [block] = folding.blocks([{**(made.after or {}), self.of.start: at}])
        row = self._without_others(self._new(block), is_whole=made.is_whole)
        self.of.writer.copy_current(self.connection, self._keys([old]), row, self.end)
        self.last[new] = _Last(at, is_current=True)
        return left

    def _read(self, keys: list[_Key]) -> None:
        """Read when each key's last change was made, and whether it has a current version."""
        for first in range(0, len(keys), _AT_ONCE):
            some = keys[first : first + _AT_ONCE]
            sql = " UNION ALL ".join(f"SELECT {place}, {self.sql.last}" for place in range(len(some)))
            given = [value for row in self._keys(some).compared() for value in row]
            for place, at, current in self.connection.exec_driver_sql(sql, tuple(given)):
                if at is not None:
                    self.last[some[place]] = _Last(_read_time(at), bool(current))

    def _known(self, snapshots: list[tuple[_Key, Change]]) -> set[_Key]:
        """Return the keys whose current version equals the row."""
        found = set()
        for key, change in snapshots:
            if self.last[key].is_current:
                rows = self.of.fitting.row(self.table, change.after, change)
                if self.of.writer.is_current(self.connection, rows, self.end):
                    found.add(key)
        return found

    def _at_times(self, sql: str, keys: list[tuple[_Key, datetime]]) -> None:
        """Run it with each time and key."""
        if keys:
            times = self.end.encode([at for _, at in keys])
            found = self._keys([key for key, _ in keys]).compared()
            given = [(at, *key) for at, key in zip(times, found, strict=True)]
            self.connection.exec_driver_sql(sql, given)

    def _keys(self, keys: Sequence[_Key]) -> Rows:
        return self._fitted(folding.Block(self.key, list(zip(*keys, strict=True)), len(keys)))

    def _new(self, block: folding.Block) -> Rows:
        """Return rows to insert: without columns that the target computes."""
        return self.of.fitting.rows(self.table, block, self.changes)

    def _fitted(self, block: folding.Block) -> Rows:
        return self.of.fitting.rows(self.table, block, self.changes, keyed=True)

    def _without_others(self, rows: Rows, *, is_whole: bool) -> Rows:
        """Let columns that the source's table does not have get their default, as in a new row. Rows that are
        not whole keep them: a function of the user's may have made them."""
        known = {*rows.columns, *self.own, self.end}
        others = (one for one in self.table.columns.values() if one not in known) if is_whole else ()
        return replace(rows, untold=tuple(one for one in others if one.default))


def _row(change: Change) -> Row:
    return (change.after if change.after is not None else change.before) or {}


def _key(row: Row, key: tuple[str, ...]) -> _Key:
    if any(row.get(column) is None for column in key):
        raise folding.KeyMissing("a column of its primary key is missing or NULL")
    found = tuple(row[column] for column in key)
    try:
        hash(found)
    except TypeError:
        raise folding.KeyMissing("a column of its primary key is a list or an object") from None
    return found


def _time(change: Change) -> datetime:
    return _EPOCH + timedelta(milliseconds=change.source_time_ms)


def _read_time(found: Any) -> datetime:
    """Return what a driver has read. SQLite has texts."""
    time = found if isinstance(found, datetime) else datetime.fromisoformat(str(found))
    return time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None)
