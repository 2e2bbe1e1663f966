"""What a batch leaves of each row, for targets that keep rows with a version."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from handlers.api import Batch, Change, Rejected, Row
from handlers.options.templates import MissingValue, place_of
from handlers.rows import ValueUntold, check_told
from handlers.versioned.versions import BeyondVersions

KeyOf = Callable[[Row, tuple[str, ...] | None], str]
"""The text of a row's key. Raises MissingValue, TypeError."""


class State(msgspec.Struct):
    """What a batch leaves of one row."""

    text: str
    """Of its key."""
    row: Row | None
    """None: there is none."""
    key: Row
    """The key's columns, with their values."""
    types: Mapping[str, str] | None
    whole: bool
    """Whether `row` is all there is; else what the target holds beside it stays."""
    at: int
    """The place of the row's last change in `batch.changes`."""
    version: int
    partition: str
    time: int
    """Of the source, in milliseconds."""
    leaves: bool = False
    """Whether it is of the former key of a row that moved: it is written after the row under its new key."""
    of_several: bool = False
    """Whether `row` has values of earlier changes, too: which of them is to blame cannot be told then."""

    @property
    def blamed(self) -> int | None:
        """`Rejected.at` where the row is refused."""
        return None if self.of_several else self.at


def partition_of(batch: Batch, change: Change) -> str:
    """Where the change's record stood at first."""
    topic, number, _ = batch.replay_of or (change.topic, change.partition, 0)
    return f"{topic}[{number}]"


def topic_of(partition: str) -> str:
    """Of what `partition_of` says."""
    return partition.rpartition("[")[0]


def last_states(
    batch: Batch, version: Callable[[Change], int], key_of: KeyOf, places: Sequence[int]
) -> list[State]:
    """What the batch leaves of each row. `places`: of the changes in the batch that are looked at.

    Raises Rejected, with the place of the first change that has no key, or no version."""
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
    """(column, the source's type text, value), each column once; `known`: those that the target has.

    A column that is NULL and has no type waits for its first value."""
    found: set[str] = set()
    waiting: dict[tuple[int, frozenset[str]], list[str]] = {}  # by the columns of a row and their types
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
