"""`children`: how many child processes a worker has, what they hold, and that they end with it."""

from __future__ import annotations

import gc
from functools import partial
from typing import TYPE_CHECKING

from ..machine.kernel import Child

if TYPE_CHECKING:
    from ..world import Running, World

__all__ = ["ChildOracle"]


_FINDS_SECONDS = 1.0
_ON_THE_WAY = 50
"""Records of batches that a request says it may forget, which it has not read yet."""


class ChildOracle:
    def __init__(self, world: World) -> None:
        self._world = world
        world.kernel.begun = self._begun
        world.kernel.decoded = self._decoded

    def ended(self, worker: Running) -> None:
        """The worker has. A child whose program has not begun finds that then."""
        begins = self._world.kernel.start_seconds
        for child in self._world.kernel.of(worker):
            scheduler = self._world.scheduler
            wait = 0.0 if child.program is not None else begins + _FINDS_SECONDS
            scheduler.at(scheduler.now + wait, partial(self._must_end, child))

    def _must_end(self, child: Child) -> None:
        if child.code is None and not child.frozen:
            self._broken(f"{child.name} outlives its worker")

    def _begun(self, child: Child) -> None:
        count = len(self._world.kernel.of(child.parent))
        if count > child.parent.configuration.lanes.processes:
            self._broken(f"{child.parent.name} has {count} child processes")

    def _decoded(self, child: Child) -> None:
        """A batch: all that it keeps are batches that the worker has, or that it may forget."""
        worker = child.parent
        lanes = worker.worker.components.lanes.lanes
        most = worker.most_records * len(lanes) * 2 + _ON_THE_WAY
        if self._kept(child) > most:
            gc.collect()  # what refers to itself is forgotten at any time
            if (kept := self._kept(child)) > most:
                self._broken(f"{child.name} keeps {kept} records")

    def _kept(self, child: Child) -> int:
        kept = dict(child.program.batches._kept)
        for slot in child.parent.worker.components.processes._slots:
            if slot.present is not None and slot.present.pid == child.pid:
                for ticket in slot.present.released:
                    kept.pop(ticket, None)
        return sum(work.records for work in kept.values())

    def _broken(self, text: str) -> None:
        self._world.oracles.broken("children", text)
