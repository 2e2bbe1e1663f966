"""What a batch adds to its table's log. It is found where the rows are: perhaps in a child process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from handlers.api import Change, Rejected
from handlers.spark.log.marks import Marks
from handlers.spark.rows.pieces import Piece, pieces


@dataclass(frozen=True, slots=True)
class Cut:
    places: Sequence[int]
    """Where the changes that the log lacks are in the batch."""
    pieces: Iterable[tuple[Piece, Marks]] = ()
    """Each with the marks after it."""
    fault: Rejected | None = None
    """The fault of one of these changes, or of all: then there are no pieces."""


def cut(changes: Sequence[Change], shard: int | None, seen: Marks, **how: Any) -> Cut:
    """Cut the changes of a batch that `seen` lacks. `how`: as `pieces` takes it."""
    lacking, places = seen.beyond(changes, shard)
    found = []
    try:
        for piece in pieces(lacking, **how):
            seen = seen.advanced(lacking[piece.start : piece.stop], shard)
            found.append((piece, seen))
    except Rejected as fault:
        return Cut(places, fault=fault)
    return Cut(places, found)
