"""A handler that records which batches ran: when, in which lane, and with which changes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import BinaryIO, ClassVar

import msgspec

from handlers import Batch, Handler, HandlerContext


class RecordedBatch(msgspec.Struct, frozen=True):
    """A batch at its beginning."""

    table: str
    """The table's name without the database."""
    lane: int
    began: float
    """Seconds since 1970."""
    source_time_ms: int
    """When the source committed the first change."""
    places: list[tuple[int, int]]
    """(offset, index) of each change, in order of arrival."""


class Recorder(Handler):
    """Writes a line for each batch into `directory`, one file per lane."""

    per_lane: ClassVar[bool] = True

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._lane = 0
        self._file: BinaryIO | None = None

    def open(self, context: HandlerContext) -> None:
        directory = context.folder / self._directory
        directory.mkdir(parents=True, exist_ok=True)
        self._lane = context.lane or 0
        self._file = (directory / f"lane-{self._lane}.jsonl").open("ab")

    def handle(self, batch: Batch) -> None:
        began = time.time()
        places = [(change.offset, change.index) for change in batch.changes]
        first = batch.changes[0].source_time_ms
        line = RecordedBatch(batch.name, self._lane, began, first, places)
        if self._file is not None:
            self._file.write(msgspec.json.encode(line) + b"\n")
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def read_batches(directory: Path) -> list[RecordedBatch]:
    """Read all lanes' files. Return the batches in the order in which they began."""
    decoder = msgspec.json.Decoder(RecordedBatch)
    files = directory.glob("lane-*.jsonl")
    batches = [batch for file in files for batch in decoder.decode_lines(file.read_bytes())]
    return sorted(batches, key=lambda batch: batch.began)
