"""What a target must hold of a table without a key: rows, some of which may be equal."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from .rules import GONE, Rules
from .source import Row
from .told import Empty, Limits, One, Told


@dataclass
class ExpectedRows:
    """The target's rows, in any order."""

    rules: Rules
    limits: Limits
    rows: list[Row] = field(default_factory=list)

    def copied(self) -> ExpectedRows:
        return replace(self, rows=list(self.rows))

    def may_fail(self, told: Told) -> bool:
        """Whether the change may be in an error."""
        if isinstance(told, Empty):
            return self.rules.deletes == "mark" and not self.limits.marks_all
        assert isinstance(told, One)
        return self.limits.without_key == "refuse" or told.in_parts

    def lose(self, told: Told) -> None:
        """A change is in an error: nothing of it is in the target."""

    def hand_out(self, mark: str) -> None:
        raise AssertionError("no table without a key has a column of the target's own")

    def apply(self, told: Told) -> None:
        if isinstance(told, Empty):
            self._empty()
            return
        assert isinstance(told, One)
        old, new = self._left(told.before), self._left(told.after)
        if old is not None and new is None:
            self._gone(old)
            return
        if old is not None:
            self._take(old)  # a row that is not there is made
        if new is not None:
            self.rows.append(new)

    def _left(self, row: Row | None) -> Row | None:
        """What leaves of a row; None: nothing."""
        return None if row is None or not self.rules.takes(row) else self.rules.form(row)

    def _take(self, row: Row) -> bool:
        """Take one that equals the row out, if there is one."""
        # A column that came later is NULL in rows that are older.
        place = next((n for n, other in enumerate(self.rows) if _filled(other) == _filled(row)), None)
        if place is not None:
            del self.rows[place]
        return place is not None

    def _gone(self, row: Row) -> None:
        match self.rules.deletes:
            case "apply":
                self._take(row)
            case "mark":
                self._take(row)
                self.rows.append(row | {GONE: "marked"})

    def _empty(self) -> None:
        match self.rules.deletes:
            case "apply":
                self.rows.clear()
            case "mark":
                self.rows = [row | {GONE: "marked"} for row in self.rows]

    def differences(self, found: list[Row]) -> list[str]:
        """Of the rows that the target holds (texts; NULL may be absent)."""
        wanted = sorted(sorted(_filled(row).items()) for row in self.rows)
        there = sorted(sorted(_filled(row).items()) for row in found)
        if wanted == there:
            return []
        missing, more = list(wanted), list(there)
        for row in there:
            if row in missing:
                missing.remove(row)
                more.remove(row)
        return [f"{dict(row)} is missing" for row in missing] + [f"{dict(row)} is too many" for row in more]


def _filled(row: Row) -> dict[str, str]:
    """Texts, without NULLs."""
    return {name: str(value) for name, value in row.items() if value is not None}
