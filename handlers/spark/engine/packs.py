"""The packs of one handler: its own stream, if any, streams that others left, and batches in packs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from handlers.api import Batch, Change
from handlers.failures import AskAgain
from handlers.spark.engine.pack_writer import PackWriter, Ticket
from handlers.spark.log.segment_folder import SegmentFolder
from handlers.spark.log.stores.interface import Files, FilesError
from handlers.spark.log.streams import Found, Streams


class Packs:
    """Any thread may call any method."""

    def __init__(
        self,
        files: Files,
        logs: str,
        *,
        every: float,
        partitions: Callable[[], frozenset[tuple[str, int]]] = frozenset,
    ) -> None:
        """`logs`: the folder of all logs. `every`: seconds between two packs. 0: this worker writes none, and
        only reads those of others. `partitions`: this worker's at present."""
        self.files = files
        self.logs = logs
        self.partitions = partitions
        self.streams = Streams(files, logs)
        self.writer: PackWriter | None = None
        if every:
            self.writer = PackWriter(files, logs, every=every, look_through=self._look_through)

    def name_of(self, log_folder: str) -> str:
        """Return the log's name in pieces."""
        return log_folder.removeprefix(f"{self.logs}/")

    def pieces_of(self, stream: str, log_folder: str, after: int) -> Sequence[Found]:
        """End a stream. Returns its pieces after a log's last segment. Raises like Streams.pieces_of."""
        if self.writer is not None:
            self.writer.give_up(stream)
        return self.streams.pieces_of(stream, self.name_of(log_folder), after)

    def through(self, stream: str, log_folder: str) -> None:
        """A log has left a stream that was ended here. With its last log, the stream is removed."""
        with suppress(FilesError):  # or it is removed later
            self.streams.through(stream, self.name_of(log_folder))

    def _look_through(self) -> None:
        writer = self.writer
        own = None if writer is None else writer.stream()
        self.streams.look_through(int(time.time() * 1000), own=own, has_gone_on=self._has_gone_on)

    def _has_gone_on(self, log: str, after: int) -> bool:
        """Also for a log that no longer exists."""
        newest = SegmentFolder(self.files, f"{self.logs}/{log}", now=lambda: 0).newest()
        return newest == 0 or newest > after


_Place = tuple[str, int, int, int]
_Whose = tuple[_Place, _Place, int, dict[str, str]]


class Handed:
    """Batches in packs that may not be durable: one per table, or per shard. One thread for each."""

    def __init__(self) -> None:
        self._waiting: dict[int | None, tuple[_Whose, Ticket]] = {}

    def is_durable(self, batch: Batch) -> bool:
        """Whether the batch was handed over and is durable. Raises AskAgain if not known yet."""
        found = self._waiting.pop(batch.shard, None)
        if found is None or found[0] != _whose(batch):
            return False
        ticket = found[1]
        if ticket.is_durable is None:
            self.wait(batch, ticket)
        return bool(ticket.is_durable)

    def wait(self, batch: Batch, ticket: Ticket) -> None:
        """Wait until the pack of this ticket is durable. Raises AskAgain."""
        if batch.changes:
            self._waiting[batch.shard] = _whose(batch), ticket
        raise AskAgain(ticket.wait())


def _whose(batch: Batch) -> _Whose:
    """With the topics' ids, because a recreated topic has the same positions."""
    changes = batch.changes
    return _place(changes[0]), _place(changes[-1]), len(changes), dict(batch.topic_ids)


def _place(change: Change) -> _Place:
    return change.topic, change.partition, change.offset, change.index
