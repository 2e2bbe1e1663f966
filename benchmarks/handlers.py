"""The handlers of the benchmarks, which the worker finds by import path. All count into a `Tally`."""

from __future__ import annotations

import asyncio
import mmap
import threading
import time
from collections.abc import Collection
from pathlib import Path

from benchmarks.tally import FIRST, LAST, RECORDS, SLEPT, Tally
from benchmarks.topics import micros
from handlers import Batch, Handler, HandlerContext

__all__ = ["Awaiting", "Reading", "Refusing", "Sleeping", "Slow", "Storing", "Stuck", "Working"]


class _Tallying(Handler):
    def __init__(self, *, tally: str) -> None:
        self._tally = Tally(tally)
        self._cells = self._tally.cells
        self._local = threading.local()

    def _row(self) -> int:
        """Return the calling thread's place in the tally. Note the time of the thread's first batch."""
        try:
            row: int = self._local.row
        except AttributeError:
            row = self._local.row = self._tally.join(time.process_time_ns())
            self._cells[row + FIRST] = time.monotonic_ns()
        return row

    def _count(self, row: int, records: int) -> None:
        self._cells[row + RECORDS] += records
        self._cells[row + LAST] = time.monotonic_ns()


class Reading(_Tallying):
    """Read `after` of every row, so that each record is decoded fully."""

    def handle(self, batch: Batch) -> None:
        row = self._row()
        for change in batch.changes:
            if change.after is None:
                raise ValueError(f"a row without its columns at offset {change.offset}")
        self._count(row, batch.records)


class Working(_Tallying):
    """Use CPU in Python for every row: `micros` microseconds of the thread's own time."""

    def __init__(self, *, tally: str, micros: int) -> None:
        super().__init__(tally=tally)
        self._nanoseconds = micros * 1000

    def handle(self, batch: Batch) -> None:
        row = self._row()
        end = time.thread_time_ns()
        for change in batch.changes:
            end += self._nanoseconds
            total = 0
            while time.thread_time_ns() < end:
                for value in (change.after or {}).values():
                    total += len(str(value))
        self._count(row, batch.records)


class Storing(_Tallying):
    """Write the rows by the `sql` handler, then count them."""

    def __init__(self, *, tally: str, url: str) -> None:
        from handlers.sql import SqlHandler  # noqa: PLC0415 - the others need no SQLAlchemy

        super().__init__(tally=tally)
        self._sql = SqlHandler(url=url)

    def open(self, context: HandlerContext) -> None:
        self._sql.open(context)

    def handle(self, batch: Batch) -> None:
        row = self._row()
        self._sql.handle(batch)
        self._count(row, batch.records)

    def release(self, partitions: Collection[tuple[str, int]]) -> None:
        self._sql.release(partitions)

    def close(self) -> None:
        self._sql.close()


class Refusing(_Tallying):
    """Read and count the rows of all tables but `shop.t0`. Raise for those of the table `refused`."""

    def __init__(self, *, tally: str, refused: str) -> None:
        super().__init__(tally=tally)
        self._refused = refused

    def handle(self, batch: Batch) -> None:
        if batch.table == self._refused:
            raise ValueError("refused")
        for change in batch.changes:
            if change.after is None:
                raise ValueError(f"a row without its columns at offset {change.offset}")
        if batch.table != "shop.t0":
            self._count(self._row(), batch.records)


class Stuck(_Tallying):
    """Count records, and never return from the batch with the record at offset `stuck`."""

    def __init__(self, *, tally: str, stuck: int) -> None:
        super().__init__(tally=tally)
        self._stuck = stuck
        self._for_ever = threading.Event()

    def handle(self, batch: Batch) -> None:
        row = self._row()
        for first, last in batch.positions.values():
            if first <= self._stuck <= last and any(change.offset == self._stuck for change in batch.changes):
                self._for_ever.wait()
        self._count(row, batch.records)


class Sleeping(_Tallying):
    """Sleep for every record. Check the order, and that a table (with order by row: a shard) is never
    handled twice at once.

    `sleep`: `random` (`micros` of the record's number) or milliseconds. The record with number `slow` takes
    `slow_seconds`. `seen`: a file with one byte a record, which counts how often it was handled.
    """

    def __init__(
        self, *, tally: str, sleep: str | float = 0, slow: int = -1, slow_seconds: float = 60, seen: str = ""
    ) -> None:
        super().__init__(tally=tally)
        self._random = sleep == "random"
        self._seconds = 0.0 if self._random else float(sleep) / 1e3
        self._slow = slow
        self._slow_seconds = slow_seconds
        self._seen: mmap.mmap | None = None
        if seen:
            with Path(seen).open("r+b") as file:
                self._seen = mmap.mmap(file.fileno(), 0)
        # A table or shard, which keeps its order -> its last record's number within the table.
        self._last: dict[tuple[str, int | None], int] = {}
        self._running: set[tuple[str, int | None]] = set()

    def handle(self, batch: Batch) -> None:
        row = self._row()
        unit = (batch.table, batch.shard)
        self._tally.enter(unit in self._running)
        self._running.add(unit)
        out_of_order = 0
        last = self._last.get(unit, -1)
        for change in batch.changes:
            after = change.after or {}
            sequence, n = int(after["id"]), int(after["n"])
            out_of_order += sequence <= last
            last = sequence
            self._sleep(row, n)
            if self._seen is not None:
                self._seen[n] += 1
            self._count(row, 1)
        self._last[unit] = last
        self._running.discard(unit)
        self._tally.leave(out_of_order)

    def _sleep(self, row: int, n: int) -> None:
        seconds = micros(n) / 1e6 if self._random else self._seconds
        if n == self._slow:
            seconds = self._slow_seconds
        if seconds > 0:
            begin = time.monotonic_ns()
            time.sleep(seconds)
            self._cells[row + SLEPT] += time.monotonic_ns() - begin


class Awaiting(_Tallying):
    """As `Sleeping`, with a coroutine for each batch. `sleep`: milliseconds."""

    def __init__(self, *, tally: str, sleep: float) -> None:
        super().__init__(tally=tally)
        self._seconds = sleep / 1e3
        self._last: dict[tuple[str, int | None], int] = {}
        self._running: set[tuple[str, int | None]] = set()

    async def handle(self, batch: Batch) -> None:
        row = self._row()
        unit = (batch.table, batch.shard)
        self._tally.enter(unit in self._running)
        self._running.add(unit)
        out_of_order = 0
        last = self._last.get(unit, -1)
        for change in batch.changes:
            sequence = int((change.after or {})["id"])
            out_of_order += sequence <= last
            last = sequence
            begin = time.monotonic_ns()
            await asyncio.sleep(self._seconds)
            self._cells[row + SLEPT] += time.monotonic_ns() - begin
            self._count(row, 1)
        self._last[unit] = last
        self._running.discard(unit)
        self._tally.leave(out_of_order)


class Slow(Handler):
    """Sleep for every batch."""

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds

    def handle(self, batch: Batch) -> None:
        time.sleep(self._seconds)
