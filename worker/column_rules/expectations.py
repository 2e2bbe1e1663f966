"""Expectations: conditions that the rows of a table should meet, and what happens to those that do not.

As with SQL's CHECK, a row does not meet a condition that is false for it; an unknown one passes. The rows are
judged as handlers get them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from handlers import Change
from handlers.options.matching import folded_all
from worker.column_rules.comparing import FilterFault
from worker.column_rules.computed import known_before
from worker.column_rules.filters import read_filter
from worker.column_rules.settings import ExpectRule
from worker.formats.interface import UndecodableRecord

Action = Literal["warn", "dead_letter", "halt"]
_ACTIONS: tuple[Action, ...] = ("warn", "dead_letter", "halt")


class Unmet(UndecodableRecord):
    """Rows of a record do not meet expectations of their table. The message contains no value."""

    def __init__(self, message: str, table: str, rules: Sequence[str], action: Action) -> None:
        super().__init__(message)
        self.table = table
        self.rules = tuple(rules)
        self.action = action

    def parts(self) -> tuple[str, str, tuple[str, ...], Action]:
        """Return the arguments that make it again, in another process."""
        return str(self), self.table, self.rules, self.action


class Expectations:
    """Those of one entry of `tables`. Any thread."""

    def __init__(self, rules: Mapping[str, ExpectRule], deleted_column: str | None) -> None:
        """`deleted_column`: the column that marks deleted rows, which are not judged."""
        self._rules = rules
        self._filters = {name: read_filter(rule.check) for name, rule in rules.items()}
        self._deleted = deleted_column

    def unmet(self, changes: Sequence[Change], table: str) -> Unmet | None:
        """Return what the changes of one record do not meet."""
        found: dict[str, str] = {}
        for change in changes:
            row, is_judged = change.after or {}, change.op in ("insert", "update", "snapshot")
            if not is_judged or (self._deleted and row.get(self._deleted) is not None):
                continue
            for name in self._rules:
                if name not in found and (why := self._why_unmet(name, change)):
                    found[name] = why
        if not found:
            return None
        first = changes[0]
        place = f"{first.topic}[{first.partition}] offset {first.offset}"
        action = max((self._rules[name].on_failure for name in found), key=_ACTIONS.index)
        reasons = "; ".join(f"{name}: {why}" for name, why in found.items())
        return Unmet(f"{table} does not meet expectations: {reasons} (at {place})", table, [*found], action)

    def _why_unmet(self, name: str, change: Change) -> str:
        """Return why the change does not meet the rule; empty if it does, or if this is unknown."""
        row, filter_ = change.after or {}, self._filters[name]
        if missing := filter_.missing_of(row):
            if change.lacks is not None and not folded_all(missing) <= folded_all(change.lacks):
                return f"the row has no column {', '.join(missing)}"
            row = known_before(change) | row  # what an update lacks has not changed
        try:
            condition = filter_.on(tuple(row))
            is_met = None if condition is None else condition(row)
        except FilterFault as fault:
            return str(fault).removeprefix("filter: ")
        return f"{filter_.text} is false" if is_met is False else ""
