"""Units that wait until the limits of their handlers allow a call. Guarded by the lock of `Lanes`."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from worker.attempts.limit import Limit, Limited
from worker.units.unit import Unit, UnitState
from worker.units.work import Work


@dataclass(frozen=True, eq=False)
class Permits:
    lock: threading.Lock
    """The lock of `Lanes`."""
    clock: Callable[[], float]
    let_run: Callable[[Iterable[Unit]], None]
    set_timer: Callable[[Unit, float], None]
    wake: Callable[[], None]

    @contextmanager
    def call(self, unit: Unit, limit: Limit, rows: int) -> Iterator[None]:
        """Count a call against the limit while it runs. Raises Limited before it. Takes the lock."""
        with self.lock:
            started = limit.start(unit, rows, self.clock())
            self.serve(limit)
            self.wake()
        if not started:
            raise Limited(math.inf)
        try:
            yield
        finally:
            with self.lock:
                limit.ended()
                self.serve(limit)
                self.wake()

    def leave(self, unit: Unit) -> None:
        """The unit, which may run, gets another table: it waits for none of its former handlers' limits."""
        for bound in unit.table.handlers:
            bound.limit.leave(unit)
            self.serve(bound.limit)

    def hold(self, work: Work, *, wait: bool = False) -> None:
        """Let the batch's unit `wait` for the limits that allowed it no call, or for none."""
        if wait:
            work.unit.state = UnitState.LIMITED
        for run in work.runs:
            if wait and run.delay == math.inf and not run.finished:
                rows = 0 if run.accepted else run.ends[-1] - run.done
                run.limit.wait(work.unit, rows, self.clock())
            else:
                run.limit.leave(work.unit)
            self.serve(run.limit)

    def serve(self, limit: Limit) -> None:
        """Let units run whose wait is over, and the next one when the rate allows it."""
        upcoming = limit.grant(self.clock())
        self.let_run([unit for unit in limit.granted if unit.state is UnitState.LIMITED])
        if upcoming and upcoming[1] < math.inf and upcoming[0].state is UnitState.LIMITED:
            self.set_timer(*upcoming)
