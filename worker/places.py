"""Where a change of a batch comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.formats.interface import Record

if TYPE_CHECKING:
    from worker.work import Work

__all__ = ["place_of", "record_of", "record_place"]


def place_of(work: Work, place: int) -> str:
    """`topic[partition] offset n row i` of the change at `place`; of the record, while nothing is decoded."""
    changes = work.changes
    if changes is None:
        return record_place(work, place)
    if place >= len(changes):
        return "its end"
    change = changes[place]
    return f"{change.topic}[{change.partition}] offset {change.offset} row {change.index}"


def record_place(work: Work, number: int) -> str:
    """`topic[partition] offset n` of the work's record."""
    for count, (chunk, message) in enumerate(work.messages()):
        if count >= number:
            return f"{chunk.assignment.partition} offset {message.offset()}"
    return "its end"


def record_of(work: Work, place: int) -> tuple[Record, int, int | None]:
    """The record of the change at `place`, how many records of the batch come before it, the change's row.

    While nothing is decoded, `place` counts records, and there is no row.
    """
    if work.changes is None:
        for count, (_, message) in enumerate(work.messages()):
            if count == place:
                return message, count, None
        raise IndexError(place)
    change = work.changes[place]
    for count, (_, message) in enumerate(work.messages()):
        if (
            message.offset() == change.offset
            and message.partition() == change.partition
            and message.topic() == change.topic
        ):
            return message, count, change.index
    raise LookupError(f"no record of the batch is at {place_of(work, place)}")
