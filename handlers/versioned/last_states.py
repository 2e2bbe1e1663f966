"""The last state of each row in a batch, for targets that store rows with a version."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from handlers.api import Batch, Change, Rejected, Row
from handlers.options.templates import MissingValue, place_of
from handlers.rows import ValueUntold, check_told
from handlers.versioned.versions import BeyondVersions

KeyOf = Callable[[Row, tuple[str, ...] | None], str]
"""Returns the text of a row's key. Raises MissingValue, TypeError."""


class State(msgspec.Struct):
    """The state of one row after a batch."""

    text: str
    """The text of its key."""
    row: Row | None
    """None: the row is deleted."""
    key: Row
    """The key's columns, with their values."""
    types: Mapping[str, str] | None
    whole: bool
    """Whether `row` has all columns. If not, the target's other columns stay."""
    at: int
    """The place of the row's last change in `batch.changes`."""
    version: int
    partition: str
    time: int
    """Source time in milliseconds."""
    leaves: bool = False
    """Whether this is the former key of a row that moved. It is written after the row under its new key."""
    of_several: bool = False
    """Whether `row` also has values of earlier changes. It is then unknown which of them caused a fault."""

    @property
    def blamed(self) -> int | None:
        """Return `Rejected.at` for a refused row."""
        return None if self.of_several else self.at


def partition_of(batch: Batch, change: Change) -> str:
    """Return the original partition of the change's record, as `topic[number]`."""
    topic, number, _ = batch.replay_of or (change.topic, change.partition, 0)
    return f"{topic}[{number}]"


def topic_of(partition: str) -> str:
    """Return the topic in a result of `partition_of`."""
    return partition.rpartition("[")[0]


def last_states(
    batch: Batch, version: Callable[[Change], int], key_of: KeyOf, places: Sequence[int]
) -> list[State]:
    """Return each row's state after the batch. `places`: the changes of the batch to apply.

    Raises Rejected, with the place of the first change that has no key or no version."""
    states: dict[str, State] = {}
    for at in places:
        change = batch.changes[at]
        try:
            check_told(change)
            row = change.after
            named = (change.before or {}) if row is None else row
            key = key_of(named, change.key_columns)
            state = State(
                text=key,
                row=row,
                key={name: named[name] for name in change.key_columns or () if name in named},
                types=change.types,
                whole=row is None or change.is_whole,
                at=at,
                version=version(change),
                partition=partition_of(batch, change),
                time=change.source_time_ms,
                leaves=change.moves_key and change.op != "insert",
            )
        except (MissingValue, TypeError, BeyondVersions, ValueUntold) as error:
            raise Rejected(f"{place_of(change, batch.table)}: {error}", at=at) from None
        known = states.get(key)
        if known is not None and not state.whole and row is not None:
            state.row, state.whole = {**(known.row or {}), **row}, known.whole
            state.types = {**(known.types or {}), **(state.types or {})} or None
            state.of_several = known.row is not None
        states[key] = state
    return list(states.values())


def new_columns(states: Iterable[State], known: Container[str]) -> Iterator[tuple[str, str | None, Any]]:
    """Yield (column, the source's type text, value) once for each new column. `known`: the target's columns.

    A column without a type is yielded at its first value that is not NULL."""
    found: set[str] = set()
    waiting: dict[tuple[int, frozenset[str]], list[str]] = {}  # key: the columns of a row and their types
    for state in states:
        row = state.row
        if row is None:
            continue
        types = state.types or {}
        shape = id(state.types), frozenset(row)
        rest: list[str] = []
        for column in waiting.get(shape, row):
            if column in known or column in found:
                continue
            type_text, value = types.get(column), row[column]
            if type_text or value is not None:
                found.add(column)
                yield column, type_text, value
            else:
                rest.append(column)
        waiting[shape] = rest
