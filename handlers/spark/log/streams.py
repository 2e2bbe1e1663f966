"""Streams of packs that others have put: ends them, reads them, and removes them when nobody needs them."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from handlers.spark.log.pack_file import Index, Piece, encoded, read_index
from handlers.spark.log.segment_file import RESTORE, BrokenLog
from handlers.spark.log.segment_folder import UsedUp
from handlers.spark.log.stores.interface import AlreadyThere, Entry, Files

_LOOKS = 20
"""The most attempts to end a stream whose worker continues to put."""
_ABANDONED_MS = 3_600_000
"""Age of a stream's last pack from which the stream is checked for removal."""
_LOGS_AT_ONCE = 1_000
"""The most logs per check that are asked whether they have later segments."""

Found = tuple[int, Piece]
"""The number of its pack, and the piece."""
SHARED = "_shared"
"""The folder of all streams, in the folder of all logs."""
_NAME = re.compile(r"(\d{20})\.pack")
_STREAM = re.compile(r"[0-9a-f]{32}")


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


class Streams:
    """Any thread."""

    def __init__(self, files: Files, logs: str) -> None:
        """`logs`: the folder of all logs. Nothing is read until it is needed."""
        self._files = files
        self._logs = logs
        self._lock = threading.Lock()  # guards the next; held once per stream, while it is ended and read
        self._ended: dict[str, dict[str, list[Found]]] = {}
        # Of `look_through`: a stream's logs that were seen to have a segment after their pieces.
        self._gone_on: dict[str, dict[str, int]] = {}

    def pieces_of(self, stream: str, log: str, after: int) -> Sequence[Found]:
        """End the stream, if nobody has, and return its pieces after the last segment of a log.

        The stream's worker can put no more. So the returned pieces stay the only ones after that segment.
        Raises BrokenLog, and what the store raises."""
        with self._lock:
            if stream not in self._ended:
                self._end(stream)
                self._ended[stream] = read_stream(self._files, self._logs, stream)
            found = self._ended[stream].get(log, [])
        behind = found[0][1].after if found else 0
        if behind > after:
            raise BrokenLog(
                f"{self._logs}/{SHARED}/{stream} has rows after segment {behind} of {log}, but the log ends "
                f"with {after}: {RESTORE}"
            )
        pieces = found if behind == after else []
        if [piece.place for _, piece in pieces] != [*range(1, len(pieces) + 1)]:
            raise BrokenLog(
                f"{self._logs}/{SHARED}/{stream} lacks a pack with rows of {log} that binlane never removed: "
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
        found = PackFolder(self._files, self._logs, stream).found()
        return found[max(found)].modified_ms if found else 0

    def through(self, stream: str, log: str) -> None:
        """The log no longer continues in this stream: its segments contain all its pieces. The stream is
        removed with the last of its logs. Raises what the store raises."""
        with self._lock:
            logs = self._ended.get(stream)
            if logs is None or logs.pop(log, None) is None:
                return
            is_over = not logs
        if is_over:
            self._remove(stream)

    def look_through(self, now_ms: int, *, own: str | None, has_gone_on: Callable[[str, int], bool]) -> None:
        """Remove streams that nobody needs. One thread. `own`: this worker's stream. `has_gone_on`: whether a
        log has a segment after this one. Raises what the store raises."""
        for entry in self._files.list(f"{self._logs}/{SHARED}"):
            stream = entry.name
            if not is_stream(stream) or stream == own:
                continue
            folder = PackFolder(self._files, self._logs, stream)
            found = folder.found()
            if not found:
                self._forget_removed(stream)
                continue
            if found[max(found)].modified_ms + _ABANDONED_MS > now_ms:
                continue
            self._look_at(stream, has_gone_on)

    def _look_at(self, stream: str, has_gone_on: Callable[[str, int], bool]) -> None:
        logs = read_stream(self._files, self._logs, stream)
        seen = self._gone_on.setdefault(stream, {})
        left = _LOGS_AT_ONCE
        for log, pieces in logs.items():
            after = pieces[0][1].after
            if seen.get(log) == after:
                continue
            if not left or not has_gone_on(log, after):
                return  # the log's worker will continue
            left -= 1
            seen[log] = after
        # Its worker may be idle. Then that worker begins another stream.
        with self._lock:
            self._end(stream)
            logs = read_stream(self._files, self._logs, stream)
        if all(seen.get(log) == pieces[0][1].after for log, pieces in logs.items()):
            self._remove(stream)
            self._forget_removed(stream)

    def _forget_removed(self, stream: str) -> None:
        """Other workers have written its known pieces into segments, too."""
        self.forget(stream)
        self._gone_on.pop(stream, None)

    def _end(self, stream: str) -> None:
        folder = PackFolder(self._files, self._logs, stream)
        for _ in range(_LOOKS):
            found, removed = folder.counting(), folder.removed()
            last = max(found, default=0)
            if removed and last <= removed and not found:
                return  # it was removed with its end
            with suppress(FileNotFoundError):
                if found and read_index(self._files, folder.place(last), stream, last).is_end:
                    return
            number = max(last, removed) + 1
            with suppress(StreamEnded):
                folder.put(number, encoded(Index(stream, number, is_end=True), ()))
                return
        raise BrokenLog(f"{folder.path} changes faster than it can be ended")

    def _remove(self, stream: str) -> None:
        folder = PackFolder(self._files, self._logs, stream)
        folder.remove(folder.found())


class StreamEnded(Exception):
    """The number was taken or used before: somebody has ended the stream."""


def is_stream(name: str) -> bool:
    """Whether a folder in SHARED is a stream's. A database may be called SHARED, too."""
    return _STREAM.fullmatch(name) is not None


class PackFolder:
    """Any thread. Each method raises what the store raises."""

    def __init__(self, files: Files, logs: str, stream: str) -> None:
        """`logs`: the folder of all logs."""
        self.path = f"{logs}/{SHARED}/{stream}"
        self._files = files
        self._used_up = UsedUp(files, self.path)

    def place(self, number: int) -> str:
        return f"{self.path}/{number:020d}.pack"

    def put(self, number: int, data: bytes) -> None:
        """Put a pack. It is durable and in the stream when this returns. Raises StreamEnded."""
        try:
            self._files.put(self.place(number), data)
        except AlreadyThere:
            raise StreamEnded(self.path) from None
        if number <= self.removed():
            self._files.delete(self.place(number))
            raise StreamEnded(self.path)

    def found(self) -> dict[int, Entry]:
        """The existing packs, by number."""
        entries = self._files.list(self.path)
        return {int(name[1]): each for each in entries if (name := _NAME.fullmatch(each.name)) is not None}

    def counting(self) -> dict[int, Entry]:
        """The same without the last removed pack. If that exists again, a frozen worker has put it, and will
        remove it."""
        found = self.found()
        found.pop(self.removed(), None)
        return found

    def removed(self) -> int:
        """The number up to which numbers may have been used, and their packs removed."""
        return self._used_up.last()

    def remove(self, numbers: Collection[int]) -> None:
        """Remove packs that nobody needs. The last one of a stream is removed only after its end."""
        if not numbers:
            return
        self._used_up.tell(max(numbers))
        for number in sorted(numbers):
            self._files.delete(self.place(number))
