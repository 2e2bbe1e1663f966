"""Handlers that tests of played files name: they note what they get, and fail as their options say."""

from __future__ import annotations

import time
from typing import Any

from binlane import Batch, Handler, StopWorker, TargetUnavailable


class Noting(Handler):
    """Notes (attempt, ids) of each call that succeeds."""

    def __init__(self, *, fails: list[int] | None = None, times: int = 10**9, how: str = "error") -> None:
        """`fails`: ids of rows with which a call fails, this many `times`."""
        self.calls: list[tuple[int, list[int]]] = []
        self.tables: dict[str, list[int]] = {}
        self._fails, self._times, self._how = set(fails or ()), times, how

    def handle(self, batch: Batch) -> None:
        ids = [int((change.after or change.before or {"id": -1})["id"]) for change in batch.changes]
        if self._fails.intersection(ids) and self._times > 0:
            self._times -= 1
            self._fail()
        self.calls.append((batch.attempt, ids))
        self.tables.setdefault(batch.table, []).extend(ids)

    def _fail(self) -> Any:
        match self._how:
            case "stop":
                raise StopWorker("no licence")
            case "down":
                raise TargetUnavailable("it is down", retry_after=0.0)
            case "hang":
                time.sleep(2)
            case _:
                raise ValueError("not this one")
