"""SQL's LIKE. No error holds a value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from worker.column_rules.comparing import FilterFault, kind_of

__all__ = ["MOST_STEPS", "like"]

MOST_STEPS = 5_000_000
"""Of a search with _, about a second: both texts may be the row's."""


class _Segment(NamedTuple):
    """What stands between two % of a pattern: it is found as a whole, and the first place is the best."""

    length: int
    runs: tuple[tuple[int, str], ...]
    """(place in the segment, characters) of what stands between its _."""

    def is_at(self, place: int, text: str) -> bool:
        for offset, run in self.runs:  # noqa: SIM110 - a generator would take longer than the comparison
            if not text.startswith(run, place + offset):
                return False
        return True


def like(value: Any, pattern: Any) -> bool | None:
    """SQL's LIKE: % stands for any characters, _ for one, backslash takes their meaning from both.

    Takes as long as both texts are, together; with _ between two % up to their product, of which MOST_STEPS
    are made. Raises FilterFault for more of them, and for what is no text.
    """
    if value is None or pattern is None:
        return None
    if not isinstance(value, str) or not isinstance(pattern, str):
        other = pattern if isinstance(value, str) else value
        raise FilterFault(f"filter: LIKE compares texts, not {kind_of(other)}")
    first, *others = _segments(pattern)
    if not others:
        return len(value) == first.length and first.is_at(0, value)
    last = others.pop()
    begin, end = first.length, len(value) - last.length
    if begin > end or not first.is_at(0, value) or not last.is_at(end, value):
        return False
    steps = MOST_STEPS
    for segment in others:
        place, steps = _found(segment, value, begin, end, steps)
        if place < 0:
            return False
        begin = place + segment.length
    return True


def _found(segment: _Segment, text: str, begin: int, end: int, steps: int) -> tuple[int, int]:
    """The first place of the segment between the two; -1: there is none. Also how many of the steps are left.
    Raises FilterFault when they are used up."""
    if not segment.runs:
        return (begin if begin + segment.length <= end else -1), steps
    offset, longest = max(segment.runs, key=lambda one: len(one[1]))
    last = end - segment.length + offset + len(longest)
    at = text.find(longest, begin + offset, last)
    while at >= 0:
        if len(segment.runs) == 1 or segment.is_at(at - offset, text):
            return at - offset, steps
        steps -= segment.length
        if steps < 0:
            raise FilterFault(
                f"filter: LIKE takes more than {MOST_STEPS} steps for a row: its pattern has _ and is long, "
                "and so is the text; write it without _, or shorter"
            )
        at = text.find(longest, at + 1, last)
    return -1, steps


def _segments(pattern: str) -> list[_Segment]:
    """What stands before, between and behind the % of a pattern: one for a pattern without any."""
    segments: list[_Segment] = []
    runs: list[tuple[int, str]] = []
    run: list[str] = []
    length = 0
    for part in (*_parts(pattern), "%"):
        if part in ("%", "_"):
            if run:
                runs.append((length - len(run), "".join(run)))
                run = []
            length += 1
            if part == "%":
                segments.append(_Segment(length - 1, tuple(runs)))
                runs, length = [], 0
        else:
            run.append(part[1])
            length += 1
    return segments


def _parts(pattern: str) -> Iterator[str]:
    """%, _, or a character behind a backslash."""
    characters = iter(pattern)
    for character in characters:
        if character == "\\":
            yield "\\" + next(characters, "\\")
        else:
            yield character if character in "%_" else "\\" + character
