"""Batches without the changes that a handler rejects."""

from __future__ import annotations

from collections.abc import Iterator

from handlers import Batch, Handler, Rejected

__all__ = ["rejections"]


def rejections(handler: Handler, batch: Batch) -> Iterator[Rejected]:
    """Have the batch handled as a worker does that skips what is rejected."""
    first, end = 0, len(batch.changes)
    while first < end:
        try:
            handler.handle(batch.part(first, end))
        except Rejected as error:
            rejected = first + (error.at or 0)
            yield from rejections(handler, batch.part(first, rejected))
            yield error
            first = rejected + 1
        else:
            return
