"""Where a change of a batch comes from."""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice
from typing import TYPE_CHECKING

from worker.formats.interface import Record

if TYPE_CHECKING:
    from worker.units.work import Work


def origin_of(work: Work, place: int) -> str:
    """Format the position of a decoded batch's change as `topic[partition] offset n row i`."""
    changes = work.changes or ()
    if place >= len(changes):
        return "its end"
    change = changes[place]
    return f"{change.topic}[{change.partition}] offset {change.offset} row {change.index}"


def record_origin(work: Work, number: int) -> str:
    """Format the position of the work's record as `topic[partition] offset n`."""
    for count, (chunk, message) in enumerate(work.messages()):
        if count >= number:
            return chunk.assignment.record_at(message.offset())
    return "its end"


def record_of(work: Work, place: int) -> tuple[Record, int, int]:
    """Return the record of the change at `place` of a decoded batch, the number of records before it, and the
    change's row."""
    number = bisect_right(work.ends, place)  # not by offset: pieces of one record share it
    _, message = next(islice(work.messages(), number, None))
    return message, number, (work.changes or ())[place].index
