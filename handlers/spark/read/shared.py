"""What is behind a log's last segment in packs, read without ending the streams that they are of."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pyarrow as pa

from handlers.spark.locations import LOGS
from handlers.spark.log.packs.pack_file import Piece, read_piece, rows_of
from handlers.spark.log.packs.pack_folder import PackFolder
from handlers.spark.log.packs.streams import Found, read_stream
from handlers.spark.log.segment_file import Head
from handlers.spark.log.stores.interface import Files


class Shared:
    """Of one moment: what a stream holds is looked at once, when it is first asked for. Any thread."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._lock = threading.Lock()  # guards the next
        self._streams: dict[tuple[str, str], dict[str, list[Found]]] = {}

    def pieces(self, folder: str, head: Head) -> Sequence[Piece]:
        """Those behind `head`, the last segment of the log in `folder`, in order. Raises BrokenLog, and what
        the store raises."""
        return [piece for _, piece in self._found(folder, head)]

    def rows(self, folder: str, head: Head) -> pa.Table | None:
        """Their rows, in order; None: there are none. Raises as `pieces`, and FileNotFoundError where they
        are not needed any more: the log has gone on."""
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
    """The folders of all logs that a log may be below: a database may be called as they are."""
    parts = folder.split("/")
    for place, part in enumerate(parts):
        if part == LOGS:
            yield "/".join(parts[: place + 1])
