"""Batches without the changes that a handler rejects."""

from __future__ import annotations

from collections.abc import Iterator

from handlers import Batch, Handler, Rejected

__all__ = ["rejections"]


def rejections(handler: Handler, batch: Batch) -> Iterator[Rejected]:
    """Have the batch handled as a worker does that skips what is rejected."""
    changes = list(batch.changes)
    while changes:
        part = Batch(
            batch.table, changes, database=batch.database, name=batch.name, topic_ids=batch.topic_ids
        )
        try:
            handler.handle(part)
        except Rejected as error:
            at = error.at or 0
            if at:
                yield from rejections(
                    handler,
                    Batch(
                        batch.table,
                        changes[:at],
                        database=batch.database,
                        name=batch.name,
                        topic_ids=batch.topic_ids,
                    ),
                )
            yield error
            del changes[: at + 1]
        else:
            return
