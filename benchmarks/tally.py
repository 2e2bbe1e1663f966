"""Figures that handlers write while they run, in a memory-mapped file. They survive kill -9.

Every thread of the worker and of its child processes has its own row, so counting needs no lock. The reader
adds up the rows.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FIRST", "LAST", "RECORDS", "SLEPT", "Tally", "Totals"]

_THREADS = 1024
_WIDTH = 8  # 64-bit integers a row; the first row is the header
FIRST, LAST, RECORDS, SLEPT = range(4)
"""Columns of a thread's row: monotonic ns, monotonic ns, records, ns."""

_OUT_OF_ORDER, _OVERLAPS, _PEAK = range(4, 7)
"""Columns of a process's row."""
_ROWS, _CPU_AT_FIRST = range(2)


@dataclass(frozen=True)
class Totals:
    """The sum over all threads; times are monotonic ns."""

    first: int
    last: int
    records: int
    slept_seconds: float
    cpu_at_first: float
    """CPU seconds of the process when the first record was handled."""
    out_of_order: int
    overlaps: int
    peak_parallel: int

    @property
    def seconds(self) -> float:
        """From the first record handled to the last."""
        return (self.last - self.first) / 1e9


class Tally:
    """One file of figures. The reader creates it, and the handlers of one worker open it."""

    def __init__(self, path: str | Path, *, create: bool = False) -> None:
        size = (_THREADS + 1) * _WIDTH * 8
        if create:
            with Path(path).open("wb") as file:
                file.truncate(size)
        with Path(path).open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), size)
            self._file = os.dup(file.fileno())
        self.cells = memoryview(self._map).cast("q")
        self._lock = threading.Lock()
        """Guards the header among threads, as the file's lock does among processes."""
        self._counting = threading.Lock()
        """Guards this process's row."""
        self._own = 0
        self._inside = 0

    def join(self, cpu_ns: int) -> int:
        """Return a new row: the place of its first cell in `cells`."""
        with self._lock:
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            try:
                self.cells[_ROWS] += 1
                if not self.cells[_CPU_AT_FIRST]:
                    self.cells[_CPU_AT_FIRST] = cpu_ns
                return self.cells[_ROWS] * _WIDTH
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN)

    def enter(self, overlap: bool) -> None:
        """Note that a batch begins. `overlap`: another batch of its table is running."""
        with self._counting:
            row = self._own = self._own or self.join(0)
            self.cells[row + _OVERLAPS] += overlap
            self._inside += 1
            self.cells[row + _PEAK] = max(self.cells[row + _PEAK], self._inside)

    def leave(self, out_of_order: int) -> None:
        """Note that a batch ends, with the number of its records out of order."""
        with self._counting:
            self.cells[self._own + _OUT_OF_ORDER] += out_of_order
            self._inside -= 1

    def totals(self) -> Totals:
        """All figures so far; zeros before the first record."""
        cells = self.cells
        rows = range(_WIDTH, (cells[_ROWS] + 1) * _WIDTH, _WIDTH)
        return Totals(
            first=min((cells[row + FIRST] for row in rows if cells[row + FIRST]), default=0),
            last=max((cells[row + LAST] for row in rows), default=0),
            records=sum(cells[row + RECORDS] for row in rows),
            slept_seconds=sum(cells[row + SLEPT] for row in rows) / 1e9,
            cpu_at_first=cells[_CPU_AT_FIRST] / 1e9,
            out_of_order=sum(cells[row + _OUT_OF_ORDER] for row in rows),
            overlaps=sum(cells[row + _OVERLAPS] for row in rows),
            peak_parallel=sum(cells[row + _PEAK] for row in rows),
        )
