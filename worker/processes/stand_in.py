"""A handler in the worker that stands for one in the child processes."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from typing import Any

from handlers import Batch, Handler, HandlerContext
from handlers.coroutines import standing
from worker.configuration import HandlerEntry
from worker.processes.given import Opening
from worker.processes.processes import Processes

_numbers = itertools.count()


class StandIn(Handler):
    """Each method does its work in the child processes. The handler itself is made, too, but never opened."""

    is_elsewhere = True

    def __init__(self, own: Handler, entry: HandlerEntry, processes: Processes) -> None:
        self._own = own
        self._entry = entry
        self._processes = processes
        self._number = next(_numbers)
        self._opening: Opening | None = None

    @property
    def close_timeout(self) -> float:  # type: ignore[override]
        return self._own.close_timeout

    def open(self, context: HandlerContext) -> None:
        self._opening = Opening(self._number, self._entry, context)
        self._processes.open(self._opening)

    def handle(self, batch: Batch) -> None:
        assert self._opening is not None  # a worker opens its handlers first
        self._processes.handle(self._opening, batch)

    def close(self) -> None:
        self._processes.everywhere("close", self._number)

    def release_all(self, partitions: Collection[tuple[str, int]]) -> None:
        self._processes.everywhere("release", self._number, list(partitions))

    def status_of_all(self) -> Mapping[str, Any] | None:
        told = self._processes.everywhere("status", self._number)
        found = {name: one for name, one in told.items() if one is not None}
        return found or None


def stand_in(own: Handler, entry: HandlerEntry, processes: Processes) -> StandIn:
    kind = standing(StandIn, own, release=StandIn.release_all, status=StandIn.status_of_all)
    return kind(own, entry, processes)  # type: ignore[no-any-return]
