"""A handler that writes down which version of which row it was given, and a source of such rows."""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from handlers import Batch, Handler

__all__ = ["Versions", "out_of_order"]


class Versions(Handler):
    """Appends a line `table id version batch` for each row: all that is asked of order, and little else."""

    def __init__(self, *, file: str, seconds_per_batch: float = 0.0, note: str = "") -> None:
        self._file = file
        self._pause = seconds_per_batch
        self._note = note
        # Guards `_batches`.
        self._lock = threading.Lock()
        self._batches = 0
        self._out: int | None = None

    def open(self, context: object) -> None:
        self._out = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def handle(self, batch: Batch) -> None:
        assert self._out is not None
        with self._lock:
            self._batches += 1
            number = self._batches
        if self._pause:
            time.sleep(self._pause)
        lines = [
            f"{batch.table} {change.after['id']} {change.after['version']} {number} {self._note}\n"
            for change in batch.changes
            if change.after is not None
        ]
        os.write(self._out, "".join(lines).encode())  # one write: lines of two threads never mix

    def close(self) -> None:
        if self._out is not None:
            os.close(self._out)


def out_of_order(file: Path, sent: Iterable[tuple[str, int, int]]) -> list[str]:
    """What broke the order of a row, or never came. `sent`: (table, id, versions), versions from 0 on."""
    seen: dict[tuple[str, int], list[int]] = defaultdict(list)
    for line in file.read_text().splitlines():
        table, key, version = line.split()[:3]
        seen[table, int(key)].append(int(version))
    return [
        f"{table} {key}: {seen[table, key]}"
        for table, key, versions in sent
        if seen[table, key] != list(range(versions))
    ]
