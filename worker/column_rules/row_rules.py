"""Application of the rules of one entry in `tables` to the changes of its tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec.structs import astuple, replace

from handlers import Change
from handlers.logs import get_logger
from handlers.mysql.ddl import quoted
from handlers.options.matching import folded, folded_all
from handlers.rows import is_move
from handlers.values.native_types import NativeTypes, SchemaTypes, SourceColumn, in_full
from worker.column_rules.comparing import FilterFault
from worker.column_rules.filters import Filter
from worker.column_rules.forms import moment
from worker.column_rules.judging import Leaving
from worker.column_rules.plan import ColumnPlans, Row, RuleFault
from worker.column_rules.settings import ColumnRules

log = get_logger("columns")

DELETED_TYPE = "timestamp(6)"
"""The type of the column that marks deleted rows."""
_MOST_TYPES = 256
_UNTOLD: Mapping[str, str] = {}
"""The types of a source that sends none."""


class _Unmarked(Change, frozen=True, gc=False):
    """A delete of a row that the filter has excluded from its beginning."""


class RowRules:
    """The compiled rules of one entry. They cache what they learn about columns. Any thread."""

    def __init__(
        self,
        columns: ColumnRules,
        *,
        filter_: Filter | None = None,
        deletes: Literal["apply", "mark", "ignore"] = "apply",
        deleted_column: str = "deleted_at",
        marks_all: bool = False,
        secret: str | None = None,
        table: str | None = None,
        in_two: bool = False,
    ) -> None:
        """`marks_all`: all handlers can mark the rows of a TRUNCATE. `secret`: masking.secret. `table`: the
        table's name, if the rules are for one only. `in_two`: `apply` leaves the columns to `formed`. Raises
        ValueError for a hash without a secret, and if `columns` gives a column the name `deleted_column`."""
        self.deletes = deletes
        self.deleted_column = deleted_column
        self._marks_all = marks_all
        self.filter = filter_
        self.plans = ColumnPlans(columns, secret, (deleted_column,) if deletes == "mark" else ())
        self._leaving = None if filter_ is None else Leaving(filter_, self.plans.treatment)
        self._has_columns = not columns.is_empty
        self._table = table
        self._in_two = in_two
        self._told: set[str] = set()
        """Columns in the rules that a warning has reported as missing in the table."""
        self._has_looked = table is None
        # By identity: sources share the mapping between changes, so the result is shared in the same way.
        self._types: dict[int, tuple[Mapping[str, str], Mapping[str, str]]] = {}

    def hides_no_more_than(self, other: RowRules | None) -> bool:
        """Whether rows under the rules `other` (None: no rules) show nothing that these rules hide."""
        if self.filter is None and not self.plans.hides:
            return True
        if other is None:
            return False
        is_taken = self.filter is None or (other.filter is not None and other.filter.text == self.filter.text)
        return is_taken and self.plans.hides_no_more_than(other.plans)

    def apply(self, changes: list[Change], first: int, database: str, table: str) -> bool:
        """Replace the changes from `first` on by what handlers may see of them.

        Return whether DDL is among them, which stays unchanged. Raises RuleFault."""
        own = changes[first:]
        del changes[first:]
        has_ddl = False
        for place, change in enumerate(own):
            op = change.op
            if op == "ddl":
                has_ddl = True
                changes.append(change)
            elif op == "truncate":
                if (emptied := self.truncated(change, database, table)) is not None:
                    changes.append(emptied)
            else:
                gone = own[place - 1] if place and is_move(own[place - 1], change) else None
                kept = change if self._leaving is None else self._leaving.kept(change, gone)
                if kept is not None and kept.op == "delete" and self.deletes == "ignore":
                    kept = _stays(kept) if self._needs_old_row(*own[place : place + 2]) else None
                if kept is not None:
                    # For an insert that the filter excludes, a mark would create a row.
                    if self.deletes == "mark" and kept.op == "delete" and op not in ("delete", "update"):
                        kept = _Unmarked(*astuple(kept))
                    changes.append(kept if self._in_two else self.formed(kept, kept, database, table))
        return has_ddl

    def _needs_old_row(self, gone: Change, made: Change | None = None) -> bool:
        """Whether an update changed the key, and its visible new row lacks columns of the old row."""
        if made is None or made.is_whole or not is_move(gone, made):
            return False
        kept = made if self._leaving is None else self._leaving.kept(made, gone)
        return kept is not None and kept.op == "insert"

    def truncated(self, change: Change, database: str, table: str) -> Change | None:
        """Return a TRUNCATE of the table for handlers; None if they see nothing. Raises RuleFault."""
        if self.deletes == "ignore":
            return None
        if self.deletes == "apply":
            return replace(change, sql=change.sql and f"TRUNCATE TABLE {quoted(database, table)}")
        if not self._marks_all:
            raise RuleFault(
                "TRUNCATE does not list the rows to mark (deletes: mark), and only the built-in handler sql "
                "can mark all rows: give the table no other handler, or set deletes: apply"
            )
        mark = {self.deleted_column: moment(change.source_time_ms)}
        types = {self.deleted_column: DELETED_TYPE}
        return replace(change, op="truncate", after=mark, key_columns=None, types=types, sql=None)

    def formed(self, change: Change, origin: Change, database: str, table: str) -> Change:
        """Return a row change as handlers may see it. `origin`: the one that `apply` has left, from
        which it was made. Raises RuleFault."""
        before, after, types, key = change.before, change.after, change.types, change.key_columns
        if not self._has_columns and self.deletes != "mark":
            return change if change.sql is None else replace(change, sql=None)
        plans = self.plans
        if types is None and not self._has_looked and change.op in ("insert", "snapshot") and change.is_whole:
            self._has_looked = True
            self._tell_unknown(after or ())
        if self._has_columns:
            if before is not None:
                before = plans.form(tuple(before))(before)
            if after is not None:
                after = plans.form(tuple(after))(after)
            if key:
                key = plans.key(key)
            if plans.added:
                before, after = self._with_added(change, before, after, database, table)
        types = self._types_of(_UNTOLD if types is None else types) or None
        lacks = change.lacks
        if lacks and self._has_columns:
            lacks = frozenset(one.to for name in lacks if (one := plans.treatment(name)) is not None)
        left = replace(
            change, before=before, after=after, key_columns=key, types=types, sql=None, lacks=lacks
        )
        if plans.computed.expressions:
            try:
                left = plans.computed.add_to(left)
            except FilterFault as fault:
                raise RuleFault(str(fault)) from None
        marks = self.deletes == "mark" and not isinstance(origin, _Unmarked)
        return self._marked(left, database, table) if marks else left

    def _with_added(
        self, change: Change, before: Row | None, after: Row | None, database: str, table: str
    ) -> tuple[Row | None, Row | None]:
        for name, added in self.plans.added.items():
            if not change.key_columns and not added.is_constant:
                raise RuleFault(
                    f"columns.add: {name} differs between changes of a row, and the table has no primary "
                    "key: its rows are identified by all their columns; add only {value: ...}, database or "
                    "table"
                )
            value = added.value(change, database, table)
            if after is not None:
                after[name] = value
            if not change.key_columns and before is not None:
                before[name] = value
        return before, after

    def _marked(self, change: Change, database: str, table: str) -> Change:
        """Add the mark's column to the change. A delete becomes an update that sets it, with added columns of
        the delete. Among equal rows without a key, it marks one that is not deleted yet."""
        column, before, key = self.deleted_column, change.before, change.key_columns
        for row in (before, change.after):
            if not self._has_columns and folded(column) in folded_all(row or ()):
                raise _taken(column)
        if change.op != "delete":
            unmarked = None if before is None else {**before, column: None}
            return replace(change, before=unmarked, after={**(change.after or {}), column: None})
        known: Row = before or {}
        lacks = None if change.lacks is None else frozenset[str]()
        if key and not change.before_is_whole:  # only the key is certain
            known, lacks = {name: known[name] for name in key if name in known}, None
        added = {name: each.value(change, database, table) for name, each in self.plans.added.items()}
        marked = {**known, **added, column: moment(change.source_time_ms)}
        return replace(change, op="update", before={**known, column: None}, after=marked, lacks=lacks)

    def _types_of(self, types: Mapping[str, str]) -> Mapping[str, str]:
        known = self._types.get(id(types))
        if known is not None and known[0] is types:
            return known[1]
        made = in_full(types)
        if self._has_columns:
            made = self.plans.types(made)
        if self.deletes == "mark":
            if folded(self.deleted_column) in folded_all(made):
                raise _taken(self.deleted_column)
            made[self.deleted_column] = DELETED_TYPE
        if isinstance(types, SchemaTypes):
            made = SchemaTypes(
                made, {name: self._as_it_leaves(name, one) for name, one in types.columns.items()}
            )
        elif isinstance(types, NativeTypes):
            made = NativeTypes(made)
        if len(self._types) >= _MOST_TYPES:
            self._types.clear()
        if self._table is not None and types:
            self._tell_unknown(types)
        # Two threads at once get the same result.
        return self._types.setdefault(id(types), (types, made))[1]

    def _as_it_leaves(self, name: str, column: SourceColumn) -> SourceColumn:
        treatment = self.plans.treatment(name)
        return SourceColumn(None, "") if treatment is None else column._replace(to=treatment.to)

    def _tell_unknown(self, columns: Iterable[str]) -> None:
        for name, near in self.plans.unknown(columns):
            if name in self._told:
                continue
            self._told.add(name)
            log.warning(
                "column_rule_without_column",
                table=self._table,
                column=name,
                nearest=near,
                hint="columns: names this column, but the table does not have it",
            )


def _taken(column: str) -> RuleFault:
    return RuleFault(f"the table already has a column {column}; set deleted_column to an unused name")


def _stays(gone: Change) -> Change:
    """Return an update without effect for the old key of a moved row, if deletes are ignored. The row keeps
    the values that the insert lacks."""
    key = {name: (gone.before or {}).get(name) for name in gone.key_columns or ()}
    return replace(gone, op="update", before=key, after=key, lacks=None, before_is_whole=False)
