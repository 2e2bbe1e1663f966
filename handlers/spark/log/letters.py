"""Records which dead letters of a table were replayed into it.

`binlane dead-letters replay` gives each letter its own topic, `TOPIC@OFFSET`, because letters arrive in any
order. Each would add a topic to the marks, so the marks contain runs of the dead-letter topic's offsets
instead."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from handlers.progress.marks import Partition

_LETTER = re.compile("(.*@)([0-9]+)", re.DOTALL)
"""Names of Kafka's topics contain no @."""
_RUNS = 1000
"""The most runs per partition of the dead-letter topic, at some ten bytes each in every segment."""


class Run(NamedTuple):
    """Successive letters."""

    first: int
    last: int
    row: int
    """The last applied row of each letter's record."""


Letters = tuple[Run, ...]
"""The runs of one partition of the dead-letter topic, ascending."""


def letter_of(topic: str, partition: int, offset: int) -> Partition | None:
    """Return the dead-letter topic (its name with an @) and partition of a replayed change, else None.

    >>> letter_of("cdc.dead@17", 0, 17)
    ('cdc.dead@', 0)
    """
    found = _LETTER.fullmatch(topic) if "@" in topic else None
    return (found[1], partition) if found is not None and int(found[2]) == offset else None


def row_of(letters: Letters, offset: int) -> int | None:
    """Return the last applied row of a letter. None if no row was applied."""
    place = bisect_right(letters, offset, key=lambda run: run.first) - 1
    if place < 0 or letters[place].last < offset:
        return None
    return letters[place].row


def with_letter(letters: Letters, offset: int, row: int) -> Letters:
    """Return the runs with this letter applied up to a row. If there are too many, the lowest are dropped.

    >>> with_letter((Run(3, 4, 0), Run(6, 9, 0)), 5, 0)
    (Run(first=3, last=9, row=0),)

    >>> with_letter((Run(3, 9, 0),), 5, 2)
    (Run(first=3, last=4, row=0), Run(first=5, last=5, row=2), Run(first=6, last=9, row=0))
    """
    return _joined([*_without(letters, offset), Run(offset, offset, row)])[-_RUNS:]


def _without(letters: Iterable[Run], offset: int) -> Iterable[Run]:
    for run in letters:
        if not run.first <= offset <= run.last:
            yield run
            continue
        if run.first < offset:
            yield Run(run.first, offset - 1, run.row)
        if offset < run.last:
            yield Run(offset + 1, run.last, run.row)


def _joined(runs: Iterable[Run]) -> Letters:
    joined: list[Run] = []
    for run in sorted(runs):
        before = joined[-1] if joined else None
        if before is not None and (before.last + 1, before.row) == (run.first, run.row):
            joined[-1] = Run(before.first, run.last, run.row)
        else:
            joined.append(run)
    return tuple(joined)
