"""Columns that are computed from the row: `total_eur: round(total * 0.92, 2)`.

An expression has the syntax of filters, and calculations. Its text alone tells its type, so no statement of
the source changes it. It is computed from the row as handlers get it. So a computed column always fits its
row in the target, and shows nothing that the rules hide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec.structs import replace

from handlers import Change
from handlers.options.matching import folded, folded_all
from worker.column_rules import filters
from worker.column_rules.comparing import FilterFault
from worker.column_rules.forms import Cast
from worker.column_rules.values import cast, cast_in, compiled

_KINDS = {
    **filters.CONDITIONS,
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Nullif"), ("value", "this expression")),
    "DPipe": ("value", "this expression safe"),
    **dict.fromkeys(("Abs", "Date"), ("value", "this")),
    "Round": ("value", "this decimals"),
    "Cast": ("value", "this to"),
    "Case": ("value", "ifs default"),
}
_ALLOWED = f"{filters.ALLOWED}, + - * /, ||, ROUND, ABS, DATE, NULLIF, CASE WHEN, CAST"
_TRUTH = Cast("tinyint(1)", int, False)
"""As in MySQL. In a statement, MySQL has no other type for it."""
_MOST_SHAPES = 256

Row = dict[str, Any]


class Expression:
    """A parsed expression."""

    def __init__(self, text: str, tree: Any, to: Cast) -> None:
        self.text = text
        self._tree = tree
        self._to = to
        self.type = to.type
        """The type text, as in `Change.types`."""
        self.columns = filters.columns_of(tree)
        """The source's columns in the expression, spelled as in its text."""

    def on(self, own: Mapping[str, str]) -> Callable[[Row], Any]:
        """Compile it. `own`: a column's name in lower case -> its name in the row. The function raises
        FilterFault."""
        value, to = compiled(self._tree, own, filters.condition_of), self._to

        def of(row: Row) -> Any:
            found = value(row)
            return None if found is None else cast(to, found)

        return of


@lru_cache(_MOST_SHAPES)  # the file is checked, and the rules are made, several times
def read_expression(text: str) -> Expression:
    """Parse an expression. Raises FilterError."""
    tree = inner = filters.parsed(text)
    while filters.kind_of(inner) == "Paren":
        inner = inner.this
    is_condition = _KINDS.get(filters.kind_of(inner), ("",))[0] == "condition"
    filters.check(tree, _KINDS, _ALLOWED, is_condition=is_condition)
    for node in tree.walk():
        if filters.kind_of(node) in ("Cast", "Round") and cast_in(node) is None:
            raise filters.FilterError(
                f"{node.sql()[-60:]!r}: CAST knows the types of columns.cast, ROUND 0 to 38 places"
            )
    to = _TRUTH if is_condition else cast_in(inner)
    if to is None:
        raise filters.FilterError(
            "its type is unknown: write ROUND(..., 2), or CAST(... AS a type of columns.cast)"
        )
    return Expression(text, tree, _TRUTH if to.type == "boolean" else to)


# ---- rows


class _Compiled(NamedTuple):
    """An expression for rows with certain columns."""

    value: Callable[[Row], Any] | None
    """None if columns are missing."""
    there: tuple[str, ...]
    """Its columns that the rows have, by handlers' names."""
    missing: tuple[str, ...]
    """The others, by the source's names."""


def known_before(change: Change) -> Row:
    """Return the old values that are certain: in a row that is not whole, NULL may stand for any value."""
    before = change.before or {}
    if change.before_is_whole:
        return before
    return {name: value for name, value in before.items() if value is not None}


class Computed:
    """The computed columns of one entry of `tables`. Any thread."""

    def __init__(self, expressions: Mapping[str, Expression], renamed: Mapping[str, str]) -> None:
        """`renamed`: a source column's name in lower case -> its name for handlers."""
        self.expressions = expressions
        self._renamed = renamed
        self._on = lru_cache(_MOST_SHAPES)(self._compiled)

    def reader_of(self, column: str) -> str | None:
        """Return the computed column that reads this column of the source."""
        low = folded(column)
        return next((name for name, one in self.expressions.items() if low in folded_all(one.columns)), None)

    def add_to(self, change: Change) -> Change:
        """Add the values to the rows of a change as handlers get it. Raises FilterFault, without values.

        A value is absent if it cannot have changed, because the source sent none of its columns."""
        before, after, lacks, is_whole = change.before, change.after, change.lacks, change.before_is_whole
        if before is not None and (is_whole or not change.key_columns):
            try:
                before = before | self._values(before)
            except FilterFault:  # an update may mend its row, and a delete may remove it
                if not change.key_columns:
                    raise
            is_whole = is_whole and before.keys() >= self.expressions.keys()
        if after is not None:
            after = after | self._values(after)
            for name in self.expressions:
                if name not in after:
                    after |= self._untold(name, change)
            if lacks:
                lacks = lacks.union(self.expressions.keys() - after.keys())
        return replace(change, before=before, after=after, lacks=lacks, before_is_whole=is_whole)

    def _values(self, row: Row) -> Row:
        on = self._on(tuple(row))
        return {name: self._value(name, one.value, row) for name, one in on.items() if one.value is not None}

    def _value(self, name: str, value: Callable[[Row], Any], row: Row) -> Any:
        try:
            return value(row)
        except FilterFault as fault:
            raise FilterFault(f"columns.add: {name}: {str(fault).removeprefix('filter: ')}") from None

    def _untold(self, name: str, change: Change) -> Row:
        """Return the value of a row that lacks columns, as {name: value}. The old row has their values, or
        else nothing may have changed that the expression reads."""
        before, after = known_before(change), change.after or {}
        there, missing = self._on(tuple(after))[name][1:]
        lacks = None if change.lacks is None else folded_all(change.lacks)
        what = f"columns.add: {name} reads {', '.join(missing)}, which the {change.op} does not contain"
        if lacks is not None and not lacks.issuperset(map(self._name, missing)):
            raise FilterFault(f"{what}: if the source has dropped or renamed it, change the expression")
        row = before | after  # what an update lacks has not changed
        if (value := self._on(tuple(row))[name].value) is not None:
            return {name: self._value(name, value, row)}
        key = (change.key_columns or ()) if change.op == "update" else ()
        if all(one in key or (one in before and before[one] == after[one]) for one in there):
            return {}
        raise FilterFault(
            f"{what}, and {', '.join(there)}, which may have changed: let the source send whole rows, old "
            "ones too (REPLICA IDENTITY FULL, binlog_row_image=FULL; json.updates: whole)"
        )

    def _name(self, column: str) -> str:
        """Return a source column's name for handlers, in lower case."""
        return folded(self._renamed.get(folded(column), column))

    def _compiled(self, columns: tuple[str, ...]) -> dict[str, _Compiled]:
        own = {folded(name): name for name in columns}
        found = {}
        for name, one in self.expressions.items():
            names = {folded(each): own.get(self._name(each)) for each in one.columns}
            there = {low: each for low, each in names.items() if each is not None}
            missing = tuple(each for each in one.columns if folded(each) not in there)
            found[name] = _Compiled(None if missing else one.on(there), tuple(there.values()), missing)
        return found
