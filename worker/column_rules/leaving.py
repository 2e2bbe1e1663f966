"""Application of a row filter to changes: a target gets only the rows that match.

A row that no longer matches becomes a delete, whatever the operation. A row that starts to match becomes an
insert. The old row shows whether the row matched before. If the source sent no whole old row, the row may be
in the target. The same is true for inserts and snapshots. A delete by its key then removes it, if present."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from handlers import Change
from worker.column_rules.comparing import FilterFault
from worker.column_rules.filters import Filter
from worker.column_rules.plan import Row, RuleFault

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
