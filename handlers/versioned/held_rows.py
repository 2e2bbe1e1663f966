"""Reading of the target's rows, to complete changes that lack columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from handlers.http.client import AnswerTooLarge
from handlers.versioned.last_states import State

_READ_AT_ONCE = 1_000
T = TypeVar("T")


def with_held_rows(
    states: Sequence[State], read: Callable[[Sequence[State], bool], Mapping[str, T]]
) -> Iterator[tuple[Sequence[State], Mapping[str, T]]]:
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
    states: Sequence[State], read: Callable[[Sequence[State], bool], Mapping[str, T]]
) -> Iterator[tuple[Sequence[State], Mapping[str, T]]]:
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
