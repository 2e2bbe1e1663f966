"""The ready queues of all lanes: which unit is next, and which processor waits for one. Units that wait until
the limits of their handlers allow a call. All guarded by the lock of `Lanes`."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from worker.attempts.limit import Limit, Limited
from worker.configuration import LanesRule
from worker.lanes.lane import Lane, Timers
from worker.units.unit import QUICK_SECONDS, Unit, UnitState
from worker.units.work import Work

_FEW, _PATIENCE = 4, 4
"""While tables take turns: up to 4 ready units per lane count as few. After 4 others per lane became ready,
the unit that has waited longest is next, however many records it has."""
_COMPARED = 64
"""The most units whose work is compared, those that have waited longest: this runs for each batch."""
_MOSTLY = 0.9
"""The share of quick batches. If more than a tenth are slow (50 ms), batches wait for a free lane rather than
for the interpreter."""
_OF_ONE_BATCH = 0.005
"""The weight of each batch in the share of quick ones: the last 500 batches make up nearly all."""


class ReadyUnits:
    """The ready queues of all lanes. Guarded by the lock of `Lanes`."""

    def __init__(self, lanes: Sequence[Lane], rule: LanesRule) -> None:
        self.bound(rule)
        self._lanes = lanes
        self._ready: OrderedDict[Unit, None] = OrderedDict()  # by ticket
        self._tickets = 0
        self._turns = False
        self._untold = 0
        self._quick_share = 0.0  # of the latest batches

    def bound(self, rule: LanesRule) -> None:
        self.count = rule.count
        """Lanes in use. Lanes with higher numbers are removed, and end when their last batch does."""
        self.stealing = rule.work_stealing
        """Whether a processor also takes the work of other lanes."""

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, unit: Unit) -> None:
        self._untold += 1
        self._tickets += 1
        unit.ticket = self._tickets
        self._lanes[unit.lane].ready.append(unit)
        self._ready[unit] = None

    def remove(self, unit: Unit) -> Unit:
        self._lanes[unit.lane].ready.remove(unit)
        del self._ready[unit]
        return unit

    def untold(self) -> int:
        """Return how many units became ready since the last call."""
        units, self._untold = self._untold, 0
        return units

    def next(self, lane: Lane) -> Unit:
        """Take the head of this lane's queue, or of another lane's. Some unit must be ready."""
        if self._turns and self.stealing:
            return self.remove(self._whose_turn())
        own = lane if lane.ready or not self.stealing else self._fullest()
        unit = own.ready.popleft()
        del self._ready[unit]
        return unit

    def took(self, *, shortened: bool) -> None:
        """A batch starts. `shortened`: it was cut short so that other tables get a turn."""
        self._turns = shortened and bool(self._ready)

    def ran(self, seconds: float) -> None:
        """Record the duration of a batch."""
        self._quick_share += ((seconds < QUICK_SECONDS) - self._quick_share) * _OF_ONE_BATCH

    @property
    def or_running(self) -> bool:
        """Whether a unit is ready, or a batch runs."""
        return bool(self._ready) or any(lane.running for lane in self._lanes)

    def or_running_in(self, numbers: Collection[int], begun: float) -> bool:
        """Whether a unit with records in one of these lanes is ready, or runs a batch that began after
        `begun`."""
        return any(unit.account.lane in numbers for lane in self._lanes for unit in lane.ready) or any(
            lane.running and lane.running.unit.account.lane in numbers and lane.since > begun
            for lane in self._lanes
        )

    @property
    def are_many(self) -> bool:
        """Whether each processor has its next two batches, and most are too quick to gain from more records.
        Any thread, approximate."""
        if self._quick_share < _MOSTLY:
            return False
        if self.stealing:
            return len(self._ready) > 2 * self.count
        return all(len(lane.ready) > 1 for lane in self._lanes[: self.count])

    def rehome(self) -> None:
        """The units have other lanes now. Queue the ready ones there, in the same order."""
        for lane in self._lanes:
            lane.ready.clear()
        for unit in self._ready:
            self._lanes[unit.lane].ready.append(unit)

    def _fullest(self) -> Lane:
        """Return the lane with the most records among those with a ready unit."""
        found, most = None, -1
        for lane in self._lanes:  # not `max`, which calls Python code for each lane: this runs for each batch
            if lane.ready and lane.records > most:
                found, most = lane, lane.records
        assert found is not None  # some unit is ready
        return found

    def _whose_turn(self) -> Unit:
        """Return the unit with the longest work, in seconds, if few are ready: otherwise it would run alone
        at the end. A unit that has waited long enough comes first."""
        longest, lanes = next(iter(self._ready)), len(self._lanes)
        if len(self._ready) > _FEW * lanes or self._tickets - longest.ticket >= _PATIENCE * lanes:
            return longest
        return max(islice(self._ready, _COMPARED), key=lambda unit: unit.turns.seconds(unit.records))


class IdleProcessors:
    """The processors without work. Guarded by the lock of `Lanes`.

    One of them, the watcher, wakes when the next timer is due. The others wait until they are notified. So
    each timer wakes one thread. Whoever takes work while nobody watches notifies another processor."""

    def __init__(self, lanes: Sequence[Lane], timers: Timers, ready: ReadyUnits) -> None:
        self._lanes = lanes
        self._timers = timers
        self._ready = ready
        self._waiting: set[int] = set()  # those that have not been notified yet
        self._watcher: int | None = None

    def wait(self, lane: Lane, now: float) -> None:
        """Let the lane's processor wait until there may be work for it."""
        timeout = None
        if self._timers and self._watcher is None:
            self._watcher = lane.number
            timeout = self._timers.next_due() - now
        self._waiting.add(lane.number)
        lane.condition.wait(timeout)
        self._waiting.discard(lane.number)
        if self._watcher == lane.number:
            self._watcher = None

    def wake(self, units: int) -> None:
        """Notify a processor for each of `units` units that became ready, first those whose own lane has
        work."""
        if not units or not self._waiting:
            return
        chosen = [number for number in self._waiting if self._lanes[number].ready]
        if self._ready.stealing:
            # The watcher comes last, because another processor would have to replace it.
            others = self._waiting.difference(chosen)
            chosen += sorted(others, key=lambda number: number == self._watcher)
            del chosen[units:]
        for number in chosen:
            self._tell(number)

    def timer_set(self, due: float) -> None:
        """A timer was set. If it is now the next one, notify the watcher, or a processor to become it."""
        if self._waiting and due <= self._timers.next_due():
            self._tell(next(iter(self._waiting)) if self._watcher is None else self._watcher)

    def retire(self, lane: Lane) -> None:
        """Its processor ends. Another one takes over its notifications, its watch and its work."""
        lane.manned = False
        self.wake(len(self._ready))
        self.left_for_work()

    def left_for_work(self) -> None:
        """A processor found work. If it was the watcher, another processor must replace it."""
        if self._timers and self._waiting and self._watcher is None:
            self._tell(next(iter(self._waiting)))

    def _tell(self, number: int) -> None:
        self._waiting.discard(number)
        self._lanes[number].condition.notify()


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
