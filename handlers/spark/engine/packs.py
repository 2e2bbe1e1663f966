"""The packs of one handler: its stream, if it puts one, those that others have left, and batches in packs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from handlers.api import Batch, Change
from handlers.failures import AskAgain
from handlers.spark.engine.pack_writer import PackWriter, Ticket
from handlers.spark.log.packs.streams import Found, Streams
from handlers.spark.log.segment_folder import SegmentFolder
from handlers.spark.log.stores.interface import Files, FilesError


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
        """`logs`: the folder of all logs; `every`: seconds between two packs; 0: this worker puts none, and
        reads what others have put. `partitions`: this worker's, now."""
        self.files = files
        self.logs = logs
        self.partitions = partitions
        self.streams = Streams(files, logs)
        self.writer: PackWriter | None = None
        if every:
            self.writer = PackWriter(files, logs, every=every, look_through=self._look_through)

    def name_of(self, log_folder: str) -> str:
        """A log as pieces name it."""
        return log_folder.removeprefix(f"{self.logs}/")

    def pieces_of(self, stream: str, log_folder: str, after: int) -> Sequence[Found]:
        """What a stream holds behind the last segment of a log; it is ended. Raises as Streams.pieces_of."""
        if self.writer is not None:
            self.writer.give_up(stream)
        return self.streams.pieces_of(stream, self.name_of(log_folder), after)

    def through(self, stream: str, log_folder: str) -> None:
        """A log does not go on any more in a stream that was ended here, which is removed with its last."""
        with suppress(FilesError):  # or it is looked through later
            self.streams.through(stream, self.name_of(log_folder))

    def _look_through(self) -> None:
        writer = self.writer
        own = None if writer is None else writer.stream()
        self.streams.look_through(int(time.time() * 1000), own=own, has_gone_on=self._has_gone_on)

    def _has_gone_on(self, log: str, after: int) -> bool:
        """Also of a log that is not there any more."""
        newest = SegmentFolder(self.files, f"{self.logs}/{log}", now=lambda: 0).newest()
        return newest == 0 or newest > after


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
