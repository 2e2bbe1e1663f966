"""Streams of packs that others have put: ended, read, and removed when nobody needs them any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from handlers.spark.log.packs.pack_file import Index, Piece, encoded, read_index
from handlers.spark.log.packs.pack_folder import SHARED, PackFolder, StreamEnded, is_stream
from handlers.spark.log.segment_file import RESTORE, BrokenLog
from handlers.spark.log.stores.interface import Files

_LOOKS = 20
"""At a stream whose worker goes on putting meanwhile."""
_ABANDONED_MS = 3_600_000
"""A stream in which nothing was put for so long is looked through."""
_LOGS_AT_ONCE = 1_000
"""So many logs are asked in one look whether they have gone on."""

Found = tuple[int, Piece]
"""The number of its pack, and the piece."""


def read_stream(files: Files, logs: str, stream: str) -> dict[str, list[Found]]:
    """What a stream holds of each log: the pieces behind the last segment that any of them is behind, in
    order. A pack that is removed meanwhile holds nothing that anybody needs. Raises BrokenLog, and what the
    store raises."""
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
        """`logs`: the folder of all logs. Nothing is read before it is asked for."""
        self._files = files
        self._logs = logs
        self._lock = threading.Lock()  # guards the next; held while a stream is ended and read, once
        self._ended: dict[str, dict[str, list[Found]]] = {}
        # Of `look_through`: the logs of a stream that were seen to have a segment behind their pieces.
        self._gone_on: dict[str, dict[str, int]] = {}

    def pieces_of(self, stream: str, log: str, after: int) -> Sequence[Found]:
        """End the stream, if nobody has, and tell what it holds behind the last segment of a log.

        Whoever puts this stream can put no more: what is told here stays all there is behind that segment.
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
        """Look anew when somebody asks: what was found of it was not there any more."""
        with self._lock:
            self._ended.pop(stream, None)

    def newest_ms(self, stream: str) -> int:
        """When its last pack was put, milliseconds since 1970 by the store's clock; 0: nobody knows, or there
        is none. Raises what the store raises."""
        found = PackFolder(self._files, self._logs, stream).found()
        return found[max(found)].modified_ms if found else 0

    def through(self, stream: str, log: str) -> None:
        """The log does not continue in this stream any more, and all that did is in its segments. The stream
        is removed with the last one of them. Raises what the store raises."""
        with self._lock:
            logs = self._ended.get(stream)
            if logs is None or logs.pop(log, None) is None:
                return
            is_over = not logs
        if is_over:
            self._remove(stream)

    def look_through(self, now_ms: int, *, own: str | None, has_gone_on: Callable[[str, int], bool]) -> None:
        """Remove streams that nobody needs; one thread. `own`: the one that this worker puts; `has_gone_on`:
        whether a log has a segment behind this one. Raises what the store raises."""
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
                return  # whoever serves it brings this on
            left -= 1
            seen[log] = after
        # It may be of a worker that is idle: that one begins another.
        with self._lock:
            self._end(stream)
            logs = read_stream(self._files, self._logs, stream)
        if all(seen.get(log) == pieces[0][1].after for log, pieces in logs.items()):
            self._remove(stream)
            self._forget_removed(stream)

    def _forget_removed(self, stream: str) -> None:
        """Other workers have brought in what was known of it, too."""
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
