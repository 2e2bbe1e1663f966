"""The rows that a target holds, read for changes that lack columns."""

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
    """All states in pieces, each with what `read` gives for those that lack columns, by the text of the key.

    Former keys of moved rows come last: what is refused under its new key then stays under the former one.
    `read` is called with some states, and whether it raises AnswerTooLarge if they hold more than is read at
    once. (A row alone is read whatever its size.) No other batch of these rows runs meanwhile. Raises
    AnswerTooLarge for a row alone, too."""
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
