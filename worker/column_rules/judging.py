"""Conditions of a table applied to its rows: a filter, and expectations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from handlers import Change
from handlers.options.matching import folded_all
from worker.column_rules.comparing import FilterFault
from worker.column_rules.computed import known_before
from worker.column_rules.filters import Filter, read_filter
from worker.column_rules.plan import Row, RuleFault
from worker.column_rules.settings import ExpectRule
from worker.formats.interface import UndecodableRecord

_NOTHING: frozenset[str] = frozenset()


class Leaving:
    """Applies one filter to changes. Any thread."""

    def __init__(self, filter_: Filter, leaves: Callable[[str], object]) -> None:
        """`leaves`: true for a column of the source that the column rules do not leave out."""
        self._filter = filter_
        self._leaves = leaves

    def kept(self, change: Change, gone: Change | None = None) -> Change | None:
        """Return the change for a target with only matching rows, or None.

        `gone`: the delete of the old key, if this insert is the other half of a move. Raises RuleFault."""
        try:
            if change.after is None:
                return self._deleted(change)
            if change.op != "update":
                if self._takes(change, change.after):
                    # The old row in the record is correct, even if it is not complete.
                    if self._lost(change) != _NOTHING and not (gone and self._meets(gone.before)):
                        raise self._parted(change)
                    return change
                # It may be the next state of a row in the target. Without a key it changes no row.
                return _by_key(change) if change.key_columns else None
            return self._updated(change)
        except FilterFault as fault:
            raise RuleFault(str(fault)) from None

    def _deleted(self, change: Change) -> Change | None:
        took = self._took(change)
        if took is None:
            return _by_key(change)
        return change if took else None

    def _updated(self, change: Change) -> Change | None:
        row = change.after or {}
        takes, took = self._takes(change, row), self._took(change)
        if not takes:
            if took is None:
                return _by_key(change)
            # If the new row may lack columns, the old one may lack them too.
            is_whole = change.before_is_whole and (change.lacks is not None or not change.key_columns)
            gone = msgspec.structs.replace(
                change, op="delete", after=None, lacks=_NOTHING, before_is_whole=is_whole
            )
            return gone if took else None
        lost = self._lost(change)
        if took or (change.before is None and lost == _NOTHING):
            return change
        if not change.key_columns and took is None:
            raise _untold(change)
        # It is unknown whether the target has the row. Without a key, rows are sent whole.
        if change.key_columns and (lost or (lost is None and took is None)):
            raise self._parted(change)
        # The old row may not have matched, so it must not reach the target.
        is_new = took is False and (not change.key_columns or lost == _NOTHING)
        return msgspec.structs.replace(change, op="insert" if is_new else "update", before=None)

    def _lost(self, change: Change) -> frozenset[str] | None:
        """Return the columns that the change lacks and the rules do not leave out; None if unknown."""
        return change.lacks and frozenset(filter(self._leaves, change.lacks))

    def _parted(self, change: Change) -> RuleFault:
        which = ", ".join(sorted(self._lost(change) or ())) or "all columns"
        return RuleFault(
            f"filter: the row matches, perhaps only since this {change.op}. The source does not send the "
            f"row's value of {which}, which the target may lack: let the source send whole rows, old ones "
            "too (REPLICA IDENTITY FULL, binlog_row_image=FULL; json.updates: whole)"
        )

    def _takes(self, change: Change, row: Row) -> bool:
        condition = self._filter.on(tuple(row))
        if condition is None:
            lacking = ", ".join(self._filter.missing_of(row))
            raise RuleFault(
                f"filter: the {change.op} does not contain {lacking}; if the table has such a column, let "
                "the source send whole rows (binlog_row_image=FULL, REPLICA IDENTITY FULL)"
            )
        return condition(row) is True

    def _took(self, change: Change) -> bool | None:
        """Whether the row matched before; None if its old row does not show that."""
        row, key = change.before, change.key_columns
        # Rows without a key are found by all their columns, so the source sends whole rows.
        if key and (row is None or not change.before_is_whole):
            row = _key_of(change)  # an update does not change it
        return self._meets(row)

    def _meets(self, row: Row | None) -> bool | None:
        """Whether a row, which may be incomplete, matches the filter; None if it lacks columns of the
        filter."""
        if row is None or (condition := self._filter.on(tuple(row))) is None:
            return None
        return condition(row) is True


def _by_key(change: Change) -> Change:
    """Return a delete with only the row's key. Raises RuleFault if the table has no key."""
    if not change.key_columns:
        raise _untold(change)
    return msgspec.structs.replace(
        change,
        op="delete",
        before=_key_of(change),
        after=None,
        lacks=_NOTHING,
        before_is_whole=False,
        moves_key=change.moves_key and change.op == "delete",
    )


def _key_of(change: Change) -> Row:
    row: Row = {**(change.before or {}), **(change.after or {})}
    return {name: row[name] for name in change.key_columns or () if name in row}


def _untold(change: Change) -> RuleFault:
    return RuleFault(
        f"filter: the table has no primary key, and the {change.op} has no whole old row. So it is unknown "
        "whether its row matched before; let the source send whole old rows (binlog_row_image=FULL, REPLICA "
        "IDENTITY FULL)"
    )


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
            stays = change.op == "update" and change.moves_key  # the old row, because deletes are ignored
            row, is_judged = change.after or {}, change.op in ("insert", "update", "snapshot") and not stays
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
