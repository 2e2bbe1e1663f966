"""What a record tells, and what a target must hold then: computed from what records mean, by no code of the
product."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from .rules import GONE, Rules
from .source import ADDED, COLUMNS, LARGE, Row, key_of

Key = tuple[Any, ...]
OWN = "handled_by"
"""A column of the target alone."""


class _Any:
    """Equals nothing: `Expected.differences` passes over it."""

    def __repr__(self) -> str:
        return "anything"


ANY: Final = _Any()
UNKNOWN: Final = _Any()
"""Of a row: a change of it is in an error, so it may hold what it held, or be away."""
LOST: Final = _Any()
"""A value that the source has and the target cannot have: the change must be in an error."""


@dataclass(frozen=True)
class Put:
    """A row. `replaces`: an insert, a snapshot or an upsert, which sets what it does not tell to NULL.
    `in_parts`: the record's new row lacks columns, or may; those that its old row tells are in `row`. `half`:
    its old key was in another record, and what the new row lacks is in none; `row` is what the source has."""

    key: Key
    row: Row
    replaces: bool
    in_parts: bool = False
    half: bool = False
    tells_old: bool = True
    """The record tells all of the old row, if there is one."""
    hides_gaps: bool = False
    """The record's row looks whole, and is not (docs/columns.md)."""


@dataclass(frozen=True)
class Remove:
    key: Key
    tells_old: bool = True


@dataclass(frozen=True)
class Move:
    """A row gets another key. What `row` does not tell stays as it was under the old one. `in_parts`: as of
    `Put`."""

    old: Key
    key: Key
    row: Row
    in_parts: bool = False
    tells_old: bool = True


@dataclass(frozen=True)
class Empty:
    pass


@dataclass(frozen=True)
class Untold:
    """A change whose row is not told. It must be in an error."""

    key: Key
    """Of the row that the source changed."""
    tells_old: bool = False


@dataclass(frozen=True)
class One:
    """A change of one row of a table without a key. `before` is None for a new row, `after` for one that is
    gone. `in_parts`: the record's reader does not know whether the rows have all columns."""

    before: Row | None
    after: Row | None
    in_parts: bool = False


Told = Put | Remove | Move | Empty | Untold | One


@dataclass(frozen=True)
class Limits:
    """What a target cannot do, as its page says."""

    moves: bool = False
    """It moves a row that a record tells in part; else the change is in an error."""
    marks_all: bool = False
    """It can mark the rows of a truncate; else the truncate is in an error."""
    truncates: bool = True
    """It follows a truncate; else rows stay, and examples have none."""
    holds_parts: bool = True
    """It takes an update that tells a row in part; else that is in an error, if its record shows it."""
    shows_gaps: bool = True
    """Those who read what it wrote can tell what a change lacks from NULL."""
    links_moves: bool = True
    """Those who read what it wrote can tell which row got another key, also if the old one stays."""
    needs_old_rows: bool = False
    """Each update and delete must tell the old row, and rows that are deleted must go."""
    keeps_own: bool = False
    """Its tables have a column of its own."""
    without_key: Literal["match", "refuse", "untried"] = "refuse"
    """Of a table without a key it changes the row that equals the old one, or takes no change."""


@dataclass
class Expected:
    """The target's rows."""

    key: tuple[str, ...]
    rules: Rules
    limits: Limits
    rows: dict[Key, Any] = field(default_factory=dict)
    _left: set[Key] = field(default_factory=set)
    """Rows that the filter did not take when they were last told. Their old state may stay."""

    def copied(self) -> Expected:
        rows = {key: row if row is UNKNOWN else dict(row) for key, row in self.rows.items()}
        return replace(self, rows=rows, _left=set(self._left))

    def may_fail(self, told: Told) -> bool:
        """Whether the change may be in an error."""
        if isinstance(told, Empty):
            return self.rules.deletes == "mark" and not self.limits.marks_all
        assert not isinstance(told, One)
        # A mark of a row that is not told is the key and the mark.
        marks_parts = self.rules.deletes == "mark" and not (told.tells_old or self.limits.holds_parts)
        if isinstance(told, Remove | Untold):
            return marks_parts or isinstance(told, Untold)
        if self.rules.takes(told.row) is None:
            return True
        if marks_parts and (isinstance(told, Move) or not self.rules.takes(told.row)):
            return True
        if isinstance(told, Move) or (self.rules.filters and told.in_parts):
            # Whether the filter had taken the row is perhaps not told.
            return told.in_parts and (self.rules.filters or not self.limits.moves)
        return told.in_parts and (told.half or not self.limits.holds_parts or self._moves_region(told))

    def _moves_region(self, told: Put) -> bool:
        """Whether the row gets another key in a target whose keys have the region."""
        old = self.rows.get(told.key)
        return self.limits.needs_old_rows and (
            old is None or old is UNKNOWN or old["region"] != told.row["region"]
        )

    def lose(self, told: Told) -> None:
        """A change is in an error."""
        if isinstance(told, Move):
            self.rows[told.old] = UNKNOWN
        if isinstance(told, Put | Remove | Move | Untold):
            self.rows[told.key] = UNKNOWN

    def apply(self, told: Told) -> None:
        assert not isinstance(told, Untold | One)
        lost = (
            {key for key, row in self.rows.items() if row is UNKNOWN} if self.limits.needs_old_rows else set()
        )
        self._apply(told)
        # It may still be under the target's key that a change in an error would have given up.
        self.rows |= dict.fromkeys(lost, UNKNOWN)

    def _apply(self, told: Put | Remove | Move | Empty) -> None:
        match told:
            case Empty():
                self._empty()
            case Remove(key):
                self._gone(key)
            case Put(key, row):
                self._put(told)
                # What only grows takes the insert without its value (docs/formats.md).
                is_grown = self.limits.moves and not self.limits.links_moves
                if told.half and told.in_parts and is_grown and self.rules.takes(row):
                    self.rows[key][LARGE] = ANY
            case Move():
                self._move(told)

    def hand_out(self, mark: str) -> None:
        """The target's own column is set where it is NULL."""
        for row in self.rows.values():
            if row is not UNKNOWN and row[OWN] is None:
                row[OWN] = mark
            elif row is not UNKNOWN and row[OWN] is ANY:
                row[OWN] = ANY

    def _blank(self) -> Row:
        blank = dict.fromkeys(self.rules.names())
        return blank | {OWN: None} if self.limits.keeps_own else blank

    def _upon(self, old: Row | None, new: Row, *, is_known: bool = True) -> Row:
        """What a row is that was told in part. `is_known`: readers can tell what it was before."""
        if not (self.limits.shows_gaps and is_known):
            return dict.fromkeys(self.rules.names(), ANY) | new
        return (self._blank() if old is None else old) | new

    def _entered(self, new: Row, *, hides_gaps: bool = False) -> Row:
        """A row that the filter takes for the first time: with all of its values, if gaps are seen."""
        lost = [name for name in self.rules.form(dict.fromkeys(COLUMNS)) if name not in new]
        return new | dict.fromkeys(lost, ANY if hides_gaps else LOST) if self.rules.filters else new

    def _of_key(self, key: Key) -> Row:
        return dict(zip(self.key, key, strict=True))

    def _put(self, told: Put) -> None:
        key, row, replaces = told.key, told.row, told.replaces
        takes, old, had_left = self.rules.takes(row), self.rows.get(key), key in self._left
        (self._left.discard if takes else self._left.add)(key)
        if not takes:
            if not replaces:
                self._gone(key)
            elif self.rules.deletes != "ignore":
                self.rows.pop(key, None)
            return
        new = self.rules.form(row)
        if replaces:
            self.rows[key] = self._blank() | new
            if self.limits.keeps_own and old is not None:
                self.rows[key][OWN] = ANY
        elif old is not UNKNOWN or not self.limits.shows_gaps:
            if old is None and told.in_parts:
                new = self._entered(new, hides_gaps=told.hides_gaps)
            row = self.rows[key] = self._upon(old, new)
            if self.limits.keeps_own and old is not None and had_left:
                row[OWN] = ANY  # it comes as an insert (docs/columns.md), which replaces the old one

    def _move(self, told: Move) -> None:
        old, stale = self.rows.get(told.old), self.rows.get(told.key)
        self._gone(told.old)
        if old is None and self.rules.deletes == "ignore" and not self.limits.shows_gaps:
            self.rows[told.old] = UNKNOWN  # the key of a row that the filter never took looks like a row
        if not self.rules.takes(told.row):
            if self.rules.deletes != "ignore":
                self.rows.pop(told.key, None)
            return
        new = self.rules.form(told.row)
        if old is UNKNOWN:
            is_whole = COLUMNS.keys() <= told.row.keys()
            added = {name: ANY for name in ADDED if name not in told.row}  # or not there yet
            self.rows[told.key] = self._blank() | added | new if is_whole else UNKNOWN
        else:
            if old is None and told.in_parts:
                new = self._entered(new)
            is_linked = self.limits.links_moves or self.rules.deletes == "apply"
            self.rows[told.key] = self._upon(old, new, is_known=is_linked)
        row = self.rows[told.key]
        if (
            self.limits.keeps_own
            and row is not UNKNOWN
            and (stale is not None or old is UNKNOWN or self.rules.deletes != "apply")
        ):
            row[OWN] = ANY

    def _gone(self, key: Key) -> None:
        match self.rules.deletes:
            case "apply":
                self.rows.pop(key, None)
            case "mark":
                row = self.rows.get(key)
                # Of a row that the filter never took, the key and the mark may come to stand.
                is_known = row is not None and row is not UNKNOWN
                self.rows[key] = (
                    self._upon(row, self._of_key(key) | {GONE: "marked"}) if is_known else UNKNOWN
                )

    def _empty(self) -> None:
        match self.rules.deletes:
            case "apply":
                self.rows.clear()
            case "mark":
                for key, row in self.rows.items():
                    if row is not UNKNOWN:
                        self.rows[key] = row | {GONE: "marked"}

    def differences(self, found: list[Row]) -> list[str]:
        """Of the rows that the target holds (texts; NULL may be absent)."""
        there: dict[Key, list[Row]] = {}
        for row in found:
            there.setdefault(key_of(row, self.key), []).append(row)
        wanted = self._as_text()
        several = (key for key, rows in there.items() if len(rows) > 1 and wanted.get(key) is not UNKNOWN)
        told = [f"two rows have the key {key}" for key in several]
        for key, expected in wanted.items():
            rows = there.pop(key, [])
            if expected is UNKNOWN:
                continue
            if not rows:
                told.append(f"row {key} is missing, expected {expected}")
                continue
            wrong = {
                name: (rows[0].get(name), value)
                for name, value in expected.items()
                if value is not ANY and rows[0].get(name) != value
            }
            told += [
                f"row {key}: {name} is {was!r}, expected {value!r}" for name, (was, value) in wrong.items()
            ]
            more = {n: v for n, v in rows[0].items() if n not in expected and v is not None}
            if more:
                told.append(f"row {key} has more: {more}")
        return told + [f"row {key} is too many: {rows[0]}" for key, rows in there.items()]

    def _as_text(self) -> dict[Key, Any]:
        return {
            tuple(map(str, key)): row
            if row is UNKNOWN
            else {n: v if v is None or v is ANY or v is LOST else str(v) for n, v in row.items()}
            for key, row in self.rows.items()
        }
