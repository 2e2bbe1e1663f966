"""The packs of one handler, and streams that others left: ends them, reads them, and removes them when nobody
needs them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from handlers.spark.log.pack_file import (
    SHARED,
    Index,
    PackFolder,
    Piece,
    StreamEnded,
    encoded,
    is_stream,
    read_index,
)
from handlers.spark.log.pack_writer import PackWriter
from handlers.spark.log.segment_file import RESTORE, BrokenLog
from handlers.spark.log.segment_folder import SegmentFolder
from handlers.spark.log.stores.interface import Files, FilesError

_LOOKS = 20
"""The most attempts to end a stream whose worker continues to put."""
_ABANDONED_MS = 3_600_000
"""Age of a stream's last pack from which the stream is checked for removal."""
_LOGS_AT_ONCE = 1_000
"""The most logs per check that are asked whether they have later segments."""

Found = tuple[int, Piece]
"""The number of its pack, and the piece."""


def read_stream(files: Files, logs: str, stream: str) -> dict[str, list[Found]]:
    """Read a stream's pieces of each log, in order: those after the last segment that any of them follows. A
    pack that is removed meanwhile contains nothing that anybody needs. Raises BrokenLog, and what the store
    raises."""
    folder = PackFolder(files, logs, stream)
    newest: dict[str, list[Found]] = {}
    for number in sorted(folder.counting()):
        try:
            index = read_index(files, folder.place(number), stream, number)
        except FileNotFoundError:
            continue
        for piece in index.pieces:
            known = newest.get(piece.log)
            if known is None or known[0][1].after < piece.after:
                newest[piece.log] = [(number, piece)]
            elif known[0][1].after == piece.after:
                known.append((number, piece))
    return newest


class Packs:
    """The packs of one handler: its own stream, if any, and streams that others left. Any thread."""

    def __init__(
        self,
        files: Files,
        logs: str,
        *,
        every: float,
        partitions: Callable[[], frozenset[tuple[str, int]]] = frozenset,
    ) -> None:
        """`logs`: the folder of all logs. `every`: seconds between two packs. 0: this worker writes none, and
        only reads those of others. `partitions`: this worker's at present. Nothing is read until it is
        needed."""
        self.files = files
        self.logs = logs
        self.partitions = partitions
        self.writer: PackWriter | None = None
        if every:
            self.writer = PackWriter(files, logs, every=every, look_through=self._look_through)
        self._lock = threading.Lock()  # guards the next; held once per stream, while it is ended and read
        self._ended: dict[str, dict[str, list[Found]]] = {}
        # Of `look_through`: a stream's logs that were seen to have a segment after their pieces.
        self._gone_on: dict[str, dict[str, int]] = {}

    def name_of(self, log_folder: str) -> str:
        """Return the log's name in pieces."""
        return log_folder.removeprefix(f"{self.logs}/")

    def pieces_of(self, stream: str, log_folder: str, after: int) -> Sequence[Found]:
        """End the stream, if nobody has, and return its pieces after the last segment of a log.

        The stream's worker can put no more. So the returned pieces stay the only ones after that segment.
        Raises BrokenLog, and what the store raises."""
        if self.writer is not None:
            self.writer.give_up(stream)
        log = self.name_of(log_folder)
        with self._lock:
            if stream not in self._ended:
                self._end(stream)
                self._ended[stream] = read_stream(self.files, self.logs, stream)
            found = self._ended[stream].get(log, [])
        behind = found[0][1].after if found else 0
        if behind > after:
            raise BrokenLog(
                f"{self.logs}/{SHARED}/{stream} has rows after segment {behind} of {log}, but the log ends "
                f"with {after}: {RESTORE}"
            )
        pieces = found if behind == after else []
        if [piece.place for _, piece in pieces] != [*range(1, len(pieces) + 1)]:
            raise BrokenLog(
                f"{self.logs}/{SHARED}/{stream} lacks a pack with rows of {log} that binlane never removed: "
                f"{RESTORE}"
            )
        return pieces

    def forget(self, stream: str) -> None:
        """Read the stream again at the next call, because something found in it was missing."""
        with self._lock:
            self._ended.pop(stream, None)

    def newest_ms(self, stream: str) -> int:
        """When its last pack was put, milliseconds since 1970 by the store's clock. 0 if unknown or without
        packs. Raises what the store raises."""
        found = PackFolder(self.files, self.logs, stream).found()
        return found[max(found)].modified_ms if found else 0

    def through(self, stream: str, log_folder: str) -> None:
        """The log no longer continues in this stream, which was ended here: its segments contain all its
        pieces. The stream is removed with the last of its logs."""
        with self._lock:
            logs = self._ended.get(stream)
            if logs is None or logs.pop(self.name_of(log_folder), None) is None or logs:
                return
        with suppress(FilesError):  # or it is removed later
            self._remove(stream)

    def _look_through(self) -> None:
        own = None if self.writer is None else self.writer.stream()
        self.look_through(int(time.time() * 1000), own=own)

    def look_through(self, now_ms: int, *, own: str | None) -> None:
        """Remove streams that nobody needs. One thread. `own`: this worker's stream. Raises what the store
        raises."""
        for entry in self.files.list(f"{self.logs}/{SHARED}"):
            stream = entry.name
            if not is_stream(stream) or stream == own:
                continue
            folder = PackFolder(self.files, self.logs, stream)
            found = folder.found()
            if not found:
                self._forget_removed(stream)
                continue
            if found[max(found)].modified_ms + _ABANDONED_MS > now_ms:
                continue
            self._look_at(stream)

    def _look_at(self, stream: str) -> None:
        logs = read_stream(self.files, self.logs, stream)
        seen = self._gone_on.setdefault(stream, {})
        left = _LOGS_AT_ONCE
        for log, pieces in logs.items():
            after = pieces[0][1].after
            if seen.get(log) == after:
                continue
            if not left:
                return
            newest = SegmentFolder(self.files, f"{self.logs}/{log}", now=lambda: 0).newest()
            if 0 < newest <= after:
                return  # the log exists, and its worker will continue
            left -= 1
            seen[log] = after
        # Its worker may be idle. Then that worker begins another stream.
        with self._lock:
            self._end(stream)
            logs = read_stream(self.files, self.logs, stream)
        if all(seen.get(log) == pieces[0][1].after for log, pieces in logs.items()):
            self._remove(stream)
            self._forget_removed(stream)

    def _forget_removed(self, stream: str) -> None:
        """Other workers have written its known pieces into segments, too."""
        self.forget(stream)
        self._gone_on.pop(stream, None)

    def _end(self, stream: str) -> None:
        folder = PackFolder(self.files, self.logs, stream)
        for _ in range(_LOOKS):
            found, removed = folder.counting(), folder.removed()
            last = max(found, default=0)
            if removed and last <= removed and not found:
                return  # it was removed with its end
            with suppress(FileNotFoundError):
                if found and read_index(self.files, folder.place(last), stream, last).is_end:
                    return
            number = max(last, removed) + 1
            with suppress(StreamEnded):
                folder.put(number, encoded(Index(stream, number, is_end=True), ()))
                return
        raise BrokenLog(f"{folder.path} changes faster than it can be ended")

    def _remove(self, stream: str) -> None:
        folder = PackFolder(self.files, self.logs, stream)
        folder.remove(folder.found())
