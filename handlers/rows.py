"""Rows as targets keep them: what an update leaves of a row, and whether that is all of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from copy import deepcopy

import msgspec
from pydantic import BaseModel, Field, model_validator

from handlers.api import Change, Row

__all__ = ["ColumnChoice", "is_whole", "row_after", "with_own_rows"]


_NESTED = frozenset((list, dict))


def row_after(change: Change) -> Row:
    """The row as far as the change tells it: columns that an update did not send are those of `before`.

    Empty for a delete and for DDL.
    """
    if change.after is None:
        return {}
    if not change.before or change.before.keys() <= change.after.keys():
        return change.after
    return {**change.before, **change.after}


def with_own_rows(changes: Sequence[Change]) -> tuple[Change, ...]:
    """The same changes with copies of their rows, arrays and maps in them too: who changes those changes
    nobody else's."""
    return tuple(
        msgspec.structs.replace(change, before=_own(change.before), after=_own(change.after))
        for change in changes
    )


def _own(row: Row | None) -> Row | None:
    if row is None:
        return None
    return row.copy() if _NESTED.isdisjoint(map(type, row.values())) else deepcopy(row)


def is_whole(change: Change, row: Row) -> bool:
    """Whether `row` (of `row_after`) holds every column of the table.

    An inserted row is whole. An updated one is if all columns that the source names have a value; where it
    names none, that cannot be known, and the answer is no.
    """
    if change.op != "update":
        return True
    return bool(change.types) and change.types.keys() <= row.keys()  # type: ignore[union-attr] # just seen


class ColumnChoice(BaseModel):
    """The options `columns` and `exclude`."""

    columns: list[str] | None = Field(
        default=None, min_length=1, description="The columns that are kept; all when not set."
    )
    exclude: list[str] = Field(default=[], description="Columns that are left out.")

    @model_validator(mode="after")
    def _one_of_them(self) -> ColumnChoice:
        if self.columns is not None and self.exclude:
            raise ValueError("columns and exclude do not go together: remove one of the two")
        return self

    def chooser(self) -> Callable[[Row], Row]:
        """What makes the chosen row of a whole one."""
        kept: Collection[str] | None = None if self.columns is None else frozenset(self.columns)
        left_out = frozenset(self.exclude)
        if kept is None and not left_out:
            return lambda row: row
        if kept is not None:
            return lambda row: {column: value for column, value in row.items() if column in kept}
        return lambda row: {column: value for column, value in row.items() if column not in left_out}
