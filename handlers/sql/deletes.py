"""Deletes that leave the row, with the time of its deletion (`deletes: mark`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from handlers.api import Change
from handlers.native_types import NativeTypes, in_full

__all__ = ["DELETED_TYPE", "ColumnTaken", "Deletes", "marked", "time_of"]

DELETED_TYPE = "timestamp(6)"
"""Of the column that marks a row, as a source would say it."""


@dataclass(frozen=True, slots=True)
class Deletes:
    """What becomes of rows that the source deletes."""

    mode: Literal["apply", "ignore", "mark"] = "apply"
    column: str = "deleted_at"
    """With `mark`: the time of the deletion."""


class ColumnTaken(ValueError):
    """The source has a column of that name itself."""


def marked(changes: Sequence[Change], column: str) -> list[Change]:
    """The changes, deletes as updates that set `column`; in all other rows it is None.

    Raises ColumnTaken.
    """
    known: dict[int, Mapping[str, str] | None] = {}
    """By the identity of a change's types, or of its row: with the column."""
    made = []
    for change in changes:
        names = change.types if change.types is not None else change.after or change.before or {}
        if id(names) not in known:
            if any(name.casefold() == column.casefold() for name in names):
                raise ColumnTaken(
                    f"the source has a column {column} itself; set deleted_column to a name that it has not"
                )
            types = change.types
            known[id(names)] = (
                None if types is None else NativeTypes({**in_full(types), column: DELETED_TYPE})
            )
        made.append(_marked(change, column, known[id(names)]))
    return made


def _marked(change: Change, column: str, types: Mapping[str, str] | None) -> Change:
    # Of equal rows without a key, one that is not deleted yet is meant.
    before = None if change.before is None else {**change.before, column: None}
    if change.op != "delete":
        after: dict[str, Any] = {**(change.after or {}), column: None}
        return msgspec.structs.replace(change, before=before, after=after, types=types)
    # A source may send null for what it does not know of a deleted row: all but its key may be meant.
    known = {name: value for name, value in (change.before or {}).items() if value is not None}
    after = {**known, column: time_of(change.source_time_ms)}
    return msgspec.structs.replace(change, op="update", before=before, after=after, types=types)


def time_of(milliseconds: int) -> datetime:
    """A time of the source, in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
