"""The packs of one handler: the stream that it puts, if it does, and those that others have left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from handlers.spark.engine.pack_writer import PackWriter
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
