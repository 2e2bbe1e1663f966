"""A handler that writes what happens to a file of JSON lines which outlives `kill -9`.

Every worker of a test appends to the same file, one `os.write` a line with O_APPEND: the order of the lines
is the order of the events, across processes.

Lines: {"event": "start" | "row" | "end", "worker": name:pid, "handler", "table", "batch"} and, of a row,
"topic", "partition", "offset", "index", "op", "seq" (the row's column `seq`, None where it has none); of an
end "ok"; of a start "attempt" and "records".
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from handlers import Batch, Change, Handler, HandlerContext, PartialFailure

__all__ = ["Recording"]


class Recording(Handler):
    """Records each row, after whatever the options make it wait for.

    file: where to.
    row_sleep: seconds each row takes.
    slow: {table: seconds}; what a row of these tables takes instead.
    fail: {table: [seq, ...]}; these rows raise, as long as the file `fail_while` exists (always, if not set).
    partial: raise PartialFailure with the rows already recorded as done.
    hold: {table: path}; a row of this table waits as long as the path exists.
    hold_rows: {table: [seq, ...]}; only these rows wait, instead of all rows of the table.
    """

    def __init__(
        self,
        *,
        file: str,
        row_sleep: float = 0.0,
        slow: dict[str, float] | None = None,
        fail: dict[str, list[int]] | None = None,
        fail_while: str | None = None,
        partial: bool = False,
        hold: dict[str, str] | None = None,
        hold_rows: dict[str, list[int]] | None = None,
    ) -> None:
        self._out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._row_sleep = row_sleep
        self._slow = slow or {}
        self._fail = fail or {}
        self._fail_while = Path(fail_while) if fail_while else None
        self._partial = partial
        self._hold = hold or {}
        self._hold_rows = hold_rows or {}
        self._batches = itertools.count()
        self._names: dict[str, Any] = {}
        self._lock = threading.Lock()  # guards the counter of batches

    def open(self, context: HandlerContext) -> None:
        self._names = {"worker": f"{context.worker}:{os.getpid()}", "handler": context.handler}
        self._write(event="open")

    def handle(self, batch: Batch) -> None:
        with self._lock:
            number = next(self._batches)
        names = {"table": batch.table, "batch": number}
        self._write(event="start", attempt=batch.attempt, records=batch.records, **names)
        ok = False
        try:
            for done, change in enumerate(batch.changes):
                self._row(change, batch.table, done, names)
            ok = True
        finally:
            self._write(event="end", ok=ok, **names)

    def close(self) -> None:
        self._write(event="close")

    def _row(self, change: Change, table: str, done: int, names: dict[str, Any]) -> None:
        values = change.after or change.before or {}
        seq = int(values["seq"]) if "seq" in values else None
        if sleep := self._slow.get(table, self._row_sleep):
            time.sleep(sleep)
        if table in self._hold and seq in self._hold_rows.get(table, [seq]):
            while Path(self._hold[table]).exists():
                time.sleep(0.02)
        if seq in self._fail.get(table, ()) and (self._fail_while is None or self._fail_while.exists()):
            error = RuntimeError(f"row {seq} of {table} is refused")
            raise PartialFailure(done, cause=error) if self._partial else error
        self._write(
            event="row",
            topic=change.topic,
            partition=change.partition,
            offset=change.offset,
            index=change.index,
            op=change.op,
            seq=seq,
            **names,
        )

    def _write(self, **line: Any) -> None:
        os.write(self._out, json.dumps({**line, **self._names}).encode() + b"\n")
