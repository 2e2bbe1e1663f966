"""A handler with coroutines that writes what happens to it, as `recording` does."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from event_lines import EventLines, seq_of

from handlers import Batch, Handler, HandlerContext, PartialFailure

__all__ = ["Awaiting"]


class _Lines(EventLines):
    def _apply(self, batch: Batch, names: dict[str, Any]) -> None:
        raise NotImplementedError


class Awaiting(Handler):
    """Records each row, after whatever the options make it wait for.

    file: where to.
    row_sleep: seconds each row takes.
    fail: {table: [seq, ...]}; these rows raise in a batch's first two attempts.
    hang: {table: seq}; this row waits as long as the file `hang_while` exists.
    """

    def __init__(
        self,
        *,
        file: str,
        row_sleep: float = 0.0,
        fail: dict[str, list[int]] | None = None,
        hang: dict[str, int] | None = None,
        hang_while: str = "",
    ) -> None:
        self._lines = _Lines(file)
        self._batches = itertools.count(os.getpid() << 24)
        self._sleep = row_sleep
        self._fail = fail or {}
        self._hang = hang or {}
        self._hang_while = Path(hang_while)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(self, context: HandlerContext) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines.open(context)

    async def handle(self, batch: Batch) -> None:
        assert asyncio.get_running_loop() is self._loop
        names: dict[str, Any] = {"table": batch.table, "batch": next(self._batches)}
        if batch.shard is not None:
            names["shard"] = batch.shard
        names["thread"] = f"{batch.table}/{batch.shard}"  # what runs one batch at a time
        self._lines._write(event="start", attempt=batch.attempt, records=batch.records, **names)
        ok = False
        try:
            for done, change in enumerate(batch.changes):
                await self._wait_or_fail(batch, seq_of(change), done)
                self._lines._record([change], names)
            ok = True
        finally:
            self._lines._write(event="end", ok=ok, **names)

    async def release(self, partitions: Collection[tuple[str, int]]) -> None:
        assert asyncio.get_running_loop() is self._loop

    async def close(self) -> None:
        self._lines.close()

    async def _wait_or_fail(self, batch: Batch, seq: int | None, done: int) -> None:
        await asyncio.sleep(self._sleep)
        if self._hang.get(batch.table) == seq:
            while self._hang_while.exists():
                await asyncio.sleep(0.02)
        if seq in self._fail.get(batch.table, ()) and batch.attempt < 3:
            raise PartialFailure(done, cause=RuntimeError(f"row {seq} is refused"))
