"""The rows in packs after a log's last segment."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pyarrow as pa

from handlers.spark.locations import LOGS
from handlers.spark.log.packs.pack_file import Piece, read_piece, rows_of
from handlers.spark.log.packs.streams import Found, PackFolder, read_stream
from handlers.spark.log.segment_file import Head
from handlers.spark.log.stores.interface import Files


class Shared:
    """The state of one moment: each stream is read once, when first needed. Any thread."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._lock = threading.Lock()  # guards the next
        self._streams: dict[tuple[str, str], dict[str, list[Found]]] = {}

    def pieces(self, folder: str, head: Head) -> Sequence[Piece]:
        """Return the pieces after `head`, the last segment of the log in `folder`, in order. Raises
        BrokenLog, and what the store raises."""
        return [piece for _, piece in self._found(folder, head)]

    def rows(self, folder: str, head: Head) -> pa.Table | None:
        """Return their rows, in order. None without pieces. Raises like `pieces`, and FileNotFoundError if
        they are obsolete, because the log has continued."""
        bodies = [
            read_piece(self._files, path, piece.begin, piece.size, piece.checksum)
            for path, piece in self._found(folder, head)
        ]
        return pa.concat_tables(map(rows_of, bodies)) if bodies else None

    def _found(self, folder: str, head: Head) -> Iterator[tuple[str, Piece]]:
        if head.stream is None:
            return
        for logs in _roots(folder):
            packs = PackFolder(self._files, logs, head.stream)
            with self._lock:
                if (logs, head.stream) not in self._streams:
                    self._streams[logs, head.stream] = read_stream(self._files, logs, head.stream)
                found = self._streams[logs, head.stream].get(folder.removeprefix(f"{logs}/"), [])
            for number, piece in found:
                if piece.after == head.segment.number:
                    yield packs.place(number), piece


def _roots(folder: str) -> Iterator[str]:
    """Yield the folders of all logs that the log may be in: a database may be named like them."""
    parts = folder.split("/")
    for place, part in enumerate(parts):
        if part == LOGS:
            yield "/".join(parts[: place + 1])
