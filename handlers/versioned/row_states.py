"""The last state of each row in a batch, and the target's rows: to complete and to check changes.

A late change's row has an equal or higher version in the target."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from handlers.api import Batch, Change, Rejected, Row
from handlers.http.client import AnswerTooLarge
from handlers.options.templates import MissingValue, place_of
from handlers.rows import ValueUntold, check_told
from handlers.versioned.versions import EPOCH_BITS, BeyondVersions, Topic, has_reached

_READ_AT_ONCE = 1_000
_T = TypeVar("_T")
_M = TypeVar("_M")
_KeyOf = Callable[[Row, tuple[str, ...] | None], str]
"""Returns the text of a row's key. Raises MissingValue, TypeError."""


class RowMoved(Exception):
    """Versions do not show which of two changes of a row is the later one."""


class Held(NamedTuple):
    """A row in the target."""

    name: str
    """Name in messages: `the document 7 of shop.orders`."""
    version: int
    partition: str | None
    """None: another program wrote it."""


def check_late(
    batch: Batch, state: State, held: Held, *, base: int, topics: Callable[[], Sequence[Topic] | None]
) -> None:
    """Return if the change may be skipped, because the target has a later change of the row.

    It may be skipped if both come from one partition, which orders them. It may also be skipped if the
    target's change is from a later epoch of the same topic. `base`: the option `epoch`. `topics`: returns the
    topics that the target remembers now; None if it is gone. Raises RowMoved."""
    if held.version < state.version:
        return
    epoch = held.version - 1 >> EPOCH_BITS
    epochs_later = epoch - (state.version - 1 >> EPOCH_BITS)
    topic, whose = _topic_of(state.partition), f"is of {held.partition}"
    if held.partition is None:
        is_late, whose = False, "was not written by binlane"
    elif epochs_later <= 0:
        is_late = held.partition == state.partition
    elif batch.replay_of is not None:
        if 0 < base <= epoch:  # versions of dead letters do not include the option
            raise RowMoved(
                f"{place_of(batch.changes[state.at], batch.table)}: {held.name} was written with the option "
                "epoch, so it is unknown whether the dead letter is later: let the source write the row again"
            )
        is_late = True  # every later epoch wins over a replayed dead letter
    elif _topic_of(held.partition) == topic:
        known = topics()  # another worker may have begun the epoch since this batch began
        is_late = known is None or has_reached(known, topic, base=base, version=held.version)
        whose = "has a later epoch than any that the target remembers (is it a bare copy?)"
    else:
        is_late = False
    if not is_late:
        raise RowMoved(
            f"{place_of(batch.changes[state.at], batch.table)}: {held.name} {whose}, with a version as high "
            "or higher: it is unknown which of the two is later. All changes of a row must be in one "
            "partition. If the topic has other partitions now, or other writers have filled the target, let "
            f"new changes win: option epoch: {base + 1 + max(0, epochs_later)}"
        )


def are_one(former: State, state: State) -> bool:
    """Whether two consecutive changes are applied or set aside together (see `handlers.rows.borders`)."""
    return former.version == state.version or (former.leaves and not state.leaves)


def with_held_rows(
    states: Sequence[State], read: Callable[[Sequence[State], bool], Mapping[str, _T]]
) -> Iterator[tuple[Sequence[State], Mapping[str, _T]]]:
    """Yield all states in pieces. Pieces that lack columns come with the target's rows, by key text.

    Former keys of moved rows come last. If a row is refused under its new key, it stays under the former one.
    `read` takes states, and whether to raise AnswerTooLarge if they exceed one read. (A single row has no
    such limit.) No other batch of these rows runs meanwhile. Raises AnswerTooLarge if even a single row is
    too large."""
    for some in ([one for one in states if not one.leaves], [one for one in states if one.leaves]):
        if whole := [state for state in some if state.whole]:
            yield whole, {}
        yield from in_pieces([state for state in some if not state.whole], read)


def in_pieces(
    rest: Sequence[State], read: Callable[[Sequence[State], bool], _M]
) -> Iterator[tuple[Sequence[State], _M]]:
    """Yield all states in pieces with the target's rows, as `with_held_rows`."""
    start, count = 0, _READ_AT_ONCE
    while start < len(rest):
        count = min(count, len(rest) - start)
        end = start + count
        while end < len(rest) and are_one(rest[end - 1], rest[end]):
            end += 1  # what is set aside together, so that a refused row ends no version of another one
        piece = rest[start:end]
        try:
            held = read(piece, count > 1)
        except AnswerTooLarge:
            if count == 1:
                raise
            count //= 2
            continue
        yield piece, held
        start += len(piece)


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
    is_snapshot: bool = False
    is_letter: bool = False
    """Whether its change is a replayed dead letter."""
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


def _topic_of(partition: str) -> str:
    """Return the topic in a result of `partition_of`."""
    return partition.rpartition("[")[0]


def all_states(
    batch: Batch, version: Callable[[Change], int], key_of: _KeyOf, places: Sequence[int]
) -> Iterator[State]:
    """Yield the state of a row after each change. `places`: the changes of the batch to apply.

    Raises Rejected, with the place of the first change that has no key or no version."""
    for at in places:
        change = batch.changes[at]
        try:
            check_told(change)
            row = change.after
            named = (change.before or {}) if row is None else row
            key = key_of(named, change.key_columns)
            yield State(
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
                is_snapshot=change.op == "snapshot",
                is_letter=batch.replay_of is not None,
            )
        except (MissingValue, TypeError, BeyondVersions, ValueUntold) as error:
            raise Rejected(f"{place_of(change, batch.table)}: {error}", at=at) from None


def last_states(
    batch: Batch, version: Callable[[Change], int], key_of: _KeyOf, places: Sequence[int]
) -> list[State]:
    """Return the last of each row's `all_states`, with the values of earlier changes that it lacks."""
    states: dict[str, State] = {}
    for state in all_states(batch, version, key_of, places):
        known, row = states.get(state.text), state.row
        if known is not None and not state.whole and row is not None:
            state.row, state.whole = {**(known.row or {}), **row}, known.whole
            state.types = {**(known.types or {}), **(state.types or {})} or None
            state.of_several = known.row is not None
        states[state.text] = state
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
