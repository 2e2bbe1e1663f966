"""What happens in a test's handlers, in a file of JSON lines which outlives `kill -9`.

Every worker of a test appends to the same file, one `os.write` a line with O_APPEND: the order of the lines
is the order of the events, across processes.

Lines: {"event": "start" | "row" | "end", "worker": name:pid, "handler", "table", "batch"} and, of a row,
"topic", "partition", "offset", "index", "op", "id" (the row's column `id`), "seq" (its column `seq`, or the
number in a statement's comment `seq n`; None where it has none); of an end "ok"; of a start "attempt" and
"records". Each has the "thread". In a child process of a worker, each has also its own "process".
With order by row each of them has the "shard".
"""

from __future__ import annotations

import itertools
import json
import os
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from handlers import Batch, Change, Handler, HandlerContext
from worker.processes.messages import Events

__all__ = ["EventLines", "seq_of"]


class EventLines(Handler, ABC):
    """Writes the lines of its calls; what it does of a batch is a subclass's."""

    def __init__(self, file: str) -> None:
        self._out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._batches = itertools.count(os.getpid() << 24)  # one of another process has other numbers
        self._names: dict[str, Any] = {}
        self._lock = threading.Lock()  # guards the counter of batches

    def open(self, context: HandlerContext) -> None:
        self._names = {"worker": f"{context.worker}:{os.getpid()}", "handler": context.handler}
        if isinstance(context.metrics, Events):
            self._names["process"] = self._names["worker"]
            self._names["worker"] = f"{context.worker}:{os.getppid()}"
        self._write(event="open")

    def handle(self, batch: Batch) -> None:
        with self._lock:
            number = next(self._batches)
        names: dict[str, Any] = {"table": batch.table, "batch": number}
        if batch.shard is not None:
            names["shard"] = batch.shard
        self._write(event="start", attempt=batch.attempt, records=batch.records, **names)
        ok = False
        try:
            self._apply(batch, names)
            ok = True
        finally:
            self._write(event="end", ok=ok, **names)

    def close(self) -> None:
        self._write(event="close")

    @abstractmethod
    def _apply(self, batch: Batch, names: dict[str, Any]) -> None:
        """Record the rows that are applied, or raise. names: the batch's, for its lines."""

    def _record(self, changes: Iterable[Change], names: dict[str, Any]) -> None:
        for change in changes:
            self._write(
                event="row",
                topic=change.topic,
                partition=change.partition,
                offset=change.offset,
                index=change.index,
                op=change.op,
                id=(change.after or change.before or {}).get("id"),
                seq=seq_of(change),
                **names,
            )

    def _write(self, **line: Any) -> None:
        thread = threading.current_thread().name
        if "process" in self._names:
            thread = f"{os.getpid()}:{thread}"
        line = {"thread": thread, **line, **self._names}
        os.write(self._out, json.dumps(line).encode() + b"\n")


def seq_of(change: Change) -> int | None:
    values = change.after or change.before or {}
    if "seq" in values:
        return int(values["seq"])
    found = re.search(r"seq (\d+)", change.sql or "")
    return int(found[1]) if found else None
