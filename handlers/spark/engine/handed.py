"""Batches of one table that are in packs: handed over, and done as soon as these are durable."""

from __future__ import annotations

from handlers.api import Batch, Change
from handlers.asking_again import AskAgain
from handlers.spark.engine.pack_writer import Ticket

_Place = tuple[str, int, int, int]
_Whose = tuple[_Place, _Place, int, dict[str, str]]


class Handed:
    """Of one table, or of each of its shards, one batch at a time. Each is asked about by one thread."""

    def __init__(self) -> None:
        self._waiting: dict[int | None, tuple[_Whose, Ticket]] = {}

    def is_durable(self, batch: Batch) -> bool:
        """Whether it was handed over, and is durable. Raises AskAgain: it was, and nobody knows yet."""
        found = self._waiting.pop(batch.shard, None)
        if found is None or found[0] != _whose(batch):
            return False
        ticket = found[1]
        if ticket.is_durable is None:
            self.wait(batch, ticket)
        return bool(ticket.is_durable)

    def wait(self, batch: Batch, ticket: Ticket) -> None:
        """It is done when the pack of this ticket is durable. Raises AskAgain."""
        if batch.changes:
            self._waiting[batch.shard] = _whose(batch), ticket
        raise AskAgain(ticket.wait())


def _whose(batch: Batch) -> _Whose:
    """With the topics' ids: one that was made anew has the same places."""
    changes = batch.changes
    return _place(changes[0]), _place(changes[-1]), len(changes), dict(batch.topic_ids)


def _place(change: Change) -> _Place:
    return change.topic, change.partition, change.offset, change.index
