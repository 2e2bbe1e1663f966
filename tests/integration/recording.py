"""A handler that writes what happens to it, and waits or fails where its options say so."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from typing import Any

from event_lines import EventLines, seq_of

from handlers import Batch, Change, PartialFailure

__all__ = ["Recording"]


class Recording(EventLines):
    """Records each row, after whatever the options make it wait for.

    file: where to.
    row_sleep: seconds each row takes.
    slow: {table: seconds}; what a row of these tables takes instead.
    fail: {table: [seq, ...]}; these rows raise, as long as the file `fail_while` exists (always, if not set).
    partial: raise PartialFailure with the rows already recorded as done.
    hold: {table: path}; a row of this table waits as long as the path exists.
    hold_rows: {table: [seq, ...]}; only these rows wait, instead of all rows of the table.
    crash: {table: [seq, ...]}; these rows end the process, as a defect in a C library would.
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
        crash: dict[str, list[int]] | None = None,
    ) -> None:
        super().__init__(file)
        self._row_sleep = row_sleep
        self._slow = slow or {}
        self._fail = fail or {}
        self._fail_while = Path(fail_while) if fail_while else None
        self._partial = partial
        self._hold = hold or {}
        self._hold_rows = hold_rows or {}
        self._crash = crash or {}

    def _apply(self, batch: Batch, names: dict[str, Any]) -> None:
        for done, change in enumerate(batch.changes):
            self._wait_or_fail(change, batch.table, done)
            self._record([change], names)

    def _wait_or_fail(self, change: Change, table: str, done: int) -> None:
        seq = seq_of(change)
        if seq in self._crash.get(table, ()):
            ctypes.string_at(0)
        if sleep := self._slow.get(table, self._row_sleep):
            time.sleep(sleep)
        if table in self._hold and seq in self._hold_rows.get(table, [seq]):
            while Path(self._hold[table]).exists():
                time.sleep(0.02)
        if seq in self._fail.get(table, ()) and (self._fail_while is None or self._fail_while.exists()):
            error = RuntimeError(f"row {seq} of {table} is refused")
            raise PartialFailure(done, cause=error) if self._partial else error
