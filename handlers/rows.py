"""Rows of changes: is a row complete, which two changes are one update, which columns are kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from copy import deepcopy
from operator import attrgetter
from typing import Any

import msgspec
from pydantic import Field, model_validator

from handlers.api import Change, Row
from handlers.options.section import Options

_lacks = attrgetter("lacks")
position = attrgetter("topic", "partition", "offset", "index")
"""Returns a change's position."""
_WHOLE = {frozenset[str]()}
_NESTED = frozenset((list, dict))


class ValueUntold(ValueError):
    """A row appears under a new key without some of its values."""


def check_told(change: Change, *, moves: bool = False) -> None:
    """Raise ValueUntold for a new row that lacks values: the target may have removed the old row, which has
    them. `moves`: treat `change` as an update that changes the row's key in the target."""
    if (moves or change.op in ("insert", "snapshot")) and not change.is_whole:
        which = "any column" if change.lacks is None else ", ".join(sorted(change.lacks))
        raise ValueUntold(
            f"its key changed, and the source does not send the new row's value of {which}: let the source "
            "send whole rows (REPLICA IDENTITY FULL, binlog_row_image=FULL; json.updates: whole)"
        )


def check_all_told(changes: Sequence[Change]) -> None:
    """Raise ValueUntold for the first new row among the changes that lacks values."""
    if set(map(_lacks, changes)) - _WHOLE:
        for change in changes:
            check_told(change)


def on_rows(changes: Sequence[Change], function: Callable[[Sequence[Change]], Any]) -> Any:
    """Return `function(changes)`, computed where the rows are: perhaps in a child process (see
    `Handler.asks_for_rows`). Then the function and its result are pickled. Raises RowsLost."""
    computed = getattr(changes, "computed", None)
    return function(changes) if computed is None else computed(function)


def is_move(gone: Change, made: Change | None = None) -> bool:
    """Whether these two consecutive changes are one update that changed a row's key. `gone` is a delete, or
    an update that changes nothing if the old row is to stay."""
    return (
        made is not None
        and gone.moves_key
        and made.moves_key
        and gone.op != "insert"
        and made.op == "insert"
        and (gone.offset, gone.partition, gone.topic) == (made.offset, made.partition, made.topic)
    )


def borders(changes: Sequence[Change], first: int, end: int) -> list[int]:
    """Return all places at which the changes from `first` up to `end` may be split, including both ends. The
    two halves of a key change are applied or set aside together. So are changes that a transform has made of
    one. They have one position: with the first of them, a target would count all as applied."""
    pairs = ((at, changes[at - 1], changes[at]) for at in range(first + 1, end))
    inner = [at for at, *both in pairs if not is_move(*both) and len(set(map(position, both))) > 1]
    return [first, *inner, end]


def with_own_rows(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Return the same changes with deep copies of their rows, so that a handler can modify them without
    affecting others."""
    return tuple(
        msgspec.structs.replace(change, before=_own(change.before), after=_own(change.after))
        for change in changes
    )


def _own(row: Row | None) -> Row | None:
    if row is None:
        return None
    return row.copy() if _NESTED.isdisjoint(map(type, row.values())) else deepcopy(row)


class ColumnChoice(Options):
    """The options `columns` and `exclude`."""

    columns: list[str] | None = Field(default=None, min_length=1)
    """The columns that are kept; null: all."""
    exclude: list[str] = Field(default=[])
    """Columns to leave out."""

    @model_validator(mode="after")
    def _one_of_them(self) -> ColumnChoice:
        if self.columns is not None and self.exclude:
            raise ValueError("columns and exclude cannot be combined: remove one of the two")
        return self

    def chooser(self) -> Callable[[Row], Row]:
        """Return the function that keeps only the chosen columns of a row."""
        kept: Collection[str] | None = None if self.columns is None else frozenset(self.columns)
        left_out = frozenset(self.exclude)
        if kept is None and not left_out:
            return lambda row: row
        if kept is not None:
            return lambda row: {column: value for column, value in row.items() if column in kept}
        return lambda row: {column: value for column, value in row.items() if column not in left_out}
