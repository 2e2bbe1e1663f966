"""Reading of the target's rows: to complete changes that lack columns, and to check late changes.

A late change's row has an equal or higher version in the target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from handlers.api import Batch
from handlers.http.client import AnswerTooLarge
from handlers.options.templates import place_of
from handlers.versioned.last_states import State, topic_of
from handlers.versioned.versions import EPOCH_BITS, Topic, has_reached

_READ_AT_ONCE = 1_000
_T = TypeVar("_T")


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
    topic, whose = topic_of(state.partition), f"is of {held.partition}"
    if held.partition is None:
        is_late, whose = False, "was not written by binlane"
    elif epochs_later <= 0:
        is_late = held.partition == state.partition
    elif batch.replay_of is not None:
        if 0 < base <= epoch:  # versions of dead letters do not include the option
            raise RowMoved(
                f"{place_of(batch.changes[state.at], batch.table)}: {held.name} was written under the option "
                "epoch, so whether the dead letter is later cannot be told: let the source write the row anew"
            )
        is_late = True  # every later epoch wins over a replayed dead letter
    elif topic_of(held.partition) == topic:
        known = topics()  # another worker may have begun the epoch since this batch began
        is_late = known is None or has_reached(known, topic, base=base, version=held.version)
        whose = "is of a later epoch than any that the target remembers (is it a bare copy?)"
    else:
        is_late = False
    if not is_late:
        raise RowMoved(
            f"{place_of(batch.changes[state.at], batch.table)}: {held.name} {whose}, with a version as "
            f"high or higher: which of the two is later cannot be told. All changes of a row have to come "
            f"from one partition. If the topic has others now, or others have filled the target, let what "
            f"comes win: option epoch: {base + 1 + max(0, epochs_later)}"
        )


def with_held_rows(
    states: Sequence[State], read: Callable[[Sequence[State], bool], Mapping[str, _T]]
) -> Iterator[tuple[Sequence[State], Mapping[str, _T]]]:
    """Yield all states in pieces. Pieces that lack columns come with the target's rows, by key text.

    Former keys of moved rows come last. If a row is refused under its new key, it stays under the former one.
    `read` takes states, and whether to raise AnswerTooLarge if they exceed one read. (A single row has no
    such limit.) No other batch of these rows runs meanwhile. Raises AnswerTooLarge if even a single row is
    too large."""
    if leaving := [state for state in states if state.leaves]:
        staying = [state for state in states if not state.leaves]
        yield from _in_pieces(staying, read)
        states = leaving
    yield from _in_pieces(states, read)


def _in_pieces(
    states: Sequence[State], read: Callable[[Sequence[State], bool], Mapping[str, _T]]
) -> Iterator[tuple[Sequence[State], Mapping[str, _T]]]:
    if whole := [state for state in states if state.whole]:
        yield whole, {}
    rest = [state for state in states if not state.whole]
    start, count = 0, _READ_AT_ONCE
    while start < len(rest):
        piece = rest[start : start + count]
        try:
            held = read(piece, len(piece) > 1)
        except AnswerTooLarge:
            if len(piece) == 1:
                raise
            count = len(piece) // 2
            continue
        yield piece, held
        start += len(piece)
