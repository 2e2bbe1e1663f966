"""The columns for which rows have a type or a value, and the target no place yet."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Any

from handlers.versioned.last_states import State


def new_columns(states: Iterable[State], known: Container[str]) -> Iterator[tuple[str, str | None, Any]]:
    """(column, the source's type text, value), each column once; `known`: those that the target has.

    A column that is NULL and has no type waits for its first value.
    """
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
