"""A handler that marks where each batch begins and ends, in a file that all workers of a storm append to.

A line is a JSON list, one `os.write` with O_APPEND: the order of lines is the order of what happened, across
processes, and it outlives `kill -9`.

    ["b", when, worker, table, batch]
    ["e", when, worker, table, batch, topic, partition, first sequences and lengths, oldest record's time]
    ["x", when, worker, table, batch]        it failed, and comes again

`when`: seconds on the machine's monotonic clock, which no jump of the day's time changes. `worker`: name:pid,
in a child process of `lanes.processes` name:pid/pid of the child.
The sequences are runs: [[7, 3]] is 7, 8, 9. The time of a record: milliseconds since 1970.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from typing import Any

from handlers import Batch, Handler, HandlerContext
from worker.processes.messages import Events

__all__ = ["Marks", "runs"]


class Marks(Handler):
    """file: where to. row_sleep: seconds that each record takes."""

    def __init__(self, *, file: str, row_sleep: float = 0.0) -> None:
        self._out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._row_sleep = row_sleep
        self._batches = itertools.count()
        self._worker = ""

    def open(self, context: HandlerContext) -> None:
        in_child = isinstance(context.metrics, Events)
        self._worker = f"{context.worker}:{f'{os.getppid()}/' if in_child else ''}{os.getpid()}"

    def handle(self, batch: Batch) -> None:
        number = next(self._batches)
        self._write("b", batch.table, number)
        try:
            self._finish(batch, number)
        except BaseException:
            self._write("x", batch.table, number)
            raise

    def _finish(self, batch: Batch, number: int) -> None:
        if self._row_sleep:
            time.sleep(self._row_sleep * len(batch.changes))
        seqs = [int((change.after or {})["seq"]) for change in batch.changes]
        first = batch.changes[0]
        oldest = min(change.source_time_ms or 0 for change in batch.changes)
        self._write("e", batch.table, number, first.topic, first.partition, runs(seqs), oldest)

    def close(self) -> None:
        os.close(self._out)

    def _write(self, kind: str, *fields: Any) -> None:
        line = [kind, round(time.monotonic(), 4), self._worker, *fields]
        os.write(self._out, json.dumps(line, separators=(",", ":")).encode() + b"\n")


def runs(numbers: list[int]) -> list[list[int]]:
    """[[first, how many in a row], ...] in their order.

    >>> runs([7, 8, 9, 8, 9])
    [[7, 3], [8, 2]]
    """
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][0] + found[-1][1]:
            found[-1][1] += 1
        else:
            found.append([number, 1])
    return found
