"""Which changes concern rows that the filter takes, and what the others are to who sees only those.

A row that is taken no more is a delete, one that is taken from now on an insert. Old rows tell whether a row
was taken. Where they do not (sources send none, or only the key, or NULL for what they do not know), it may
have been: a delete by its key makes sure, and does nothing where there is no such row.
"""

from __future__ import annotations

from typing import Any

import msgspec

from handlers import Change
from handlers.rows import is_whole, row_after
from worker.column_rules.comparing import FilterFault
from worker.column_rules.filters import Condition, Filter
from worker.column_rules.plan import Row, RuleFault

__all__ = ["Leaving"]

_MOST_SHAPES = 256


class Leaving:
    """One filter. Any thread."""

    def __init__(self, filter_: Filter) -> None:
        self._filter = filter_
        self._wanted = frozenset(name.casefold() for name in filter_.columns)
        # By a row's columns: the condition, and which of them it looks at; None: it lacks one.
        self._known: dict[tuple[str, ...], tuple[Condition, tuple[str, ...]] | None] = {}

    def kept(self, change: Change) -> Change | None:
        """What the change is to who sees the filter's rows alone; None: nothing.

        Raises RuleFault.
        """
        try:
            if change.after is None:
                return self._deleted(change)
            if change.op != "update":
                return change if self._takes(change, change.after) else None
            return self._updated(change)
        except FilterFault as fault:
            raise RuleFault(str(fault)) from None

    def _deleted(self, change: Change) -> Change | None:
        took = self._took(change)
        if took is None:
            return _by_key(change)
        return change if took else None

    def _updated(self, change: Change) -> Change | None:
        row = row_after(change)
        takes, took = self._takes(change, row), self._took(change)
        if not takes:
            if took is None:
                return _by_key(change)
            return msgspec.structs.replace(change, op="delete", after=None) if took else None
        if took or change.before is None:
            return change
        if not change.key_columns and took is None:
            raise _untold(change)
        # Not known, or not all of it sent: an update makes the row where it is not there. The old row was
        # perhaps none of those that the filter takes, and does not leave. Without a key rows are sent whole.
        is_new = took is False and (not change.key_columns or is_whole(change, row))
        return msgspec.structs.replace(change, op="insert" if is_new else "update", before=None, after=row)

    def _takes(self, change: Change, row: Row) -> bool:
        found = self._of(row)
        if found is None:
            lacking = ", ".join(self._filter.missing_of(row))
            raise RuleFault(
                f"filter: the {change.op} does not carry {lacking}; if the table has such a column, let "
                "the source send whole rows (binlog_row_image=FULL, REPLICA IDENTITY FULL)"
            )
        return found[0](row) is True

    def _took(self, change: Change) -> bool | None:
        """Whether the row was taken before; None: its old row does not tell."""
        row = change.before
        if row is None:
            return None
        if not change.key_columns:
            # Such rows are found by all their columns: what the source sends is whole.
            found = self._of(row)
            return None if found is None else found[0](row) is True
        found = self._of(row)
        if found is None or any(row[name] is None for name in found[1]):
            return None
        return found[0](row) is True

    def _of(self, row: Row) -> tuple[Condition, tuple[str, ...]] | None:
        columns = tuple(row)
        if columns in self._known:
            return self._known[columns]
        if len(self._known) >= _MOST_SHAPES:
            self._known.clear()
        made: tuple[Condition, tuple[str, ...]] | None = None
        if not self._filter.missing_of(columns):
            looked_at = tuple(name for name in columns if name.casefold() in self._wanted)
            made = self._filter.on(columns), looked_at
        self._known[columns] = made
        return made


def _by_key(change: Change) -> Change:
    """A delete that tells the row's key and nothing else. Raises RuleFault where there is none."""
    if not change.key_columns:
        raise _untold(change)
    row: dict[str, Any] = {**(change.before or {}), **(change.after or {})}
    key = {name: row[name] for name in change.key_columns if name in row}
    return msgspec.structs.replace(change, op="delete", before=key, after=None)


def _untold(change: Change) -> RuleFault:
    return RuleFault(
        f"filter: the table has no primary key, and the {change.op} no whole old row: whether its row was "
        "taken before cannot be told; let the source send whole old rows (binlog_row_image=FULL, REPLICA "
        "IDENTITY FULL)"
    )
