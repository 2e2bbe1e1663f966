"""Lanes: bounded queues between the fetcher and the processors, work conserving and in order per unit.

put (`offer`), `take`, `finish`, `give_back`: the four verbs of the interface. A unit (a table) has at most
one batch running; an idle processor takes a whole ready unit from the fullest lane, so that one hot lane
never leaves the others idle.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable

from worker.assignment import Assignment
from worker.chunk import Delivery
from worker.idle import IdleProcessors
from worker.lane import Lane, Room, Timers, fullest, longest_waiting
from worker.unit import Unit, UnitState
from worker.work import Work

__all__ = ["Lanes"]


class Lanes:
    """All lanes of a worker. Bounds: `max_records` queued and running of each lane, `max_bytes` of all
    together."""

    def __init__(
        self,
        count: int,
        *,
        max_records: int,
        max_bytes: int,
        work_stealing: bool,
        clock: Callable[[], float],
    ) -> None:
        # Guards every lane, every unit's queue and state, and the counters below. Held for microseconds:
        # handlers never run under it.
        self._lock = threading.Lock()
        self.lanes = [Lane(number, self._lock) for number in range(count)]
        self._space = threading.Condition(self._lock)  # told when a held delivery fits
        self._settled = threading.Condition(self._lock)  # told when a batch ends while partitions leave
        self._room = Room(self.lanes, max_records, max_bytes)
        self._stealing = work_stealing
        self._clock = clock
        self._ready = 0  # units in all ready queues
        self._tickets = 0
        self._turns = False  # tables take turns: whoever waits longest is next, in whichever lane
        self._timers = Timers()
        self._idle = IdleProcessors(self.lanes, self._timers, stealing=work_stealing)
        self._held: Delivery | None = None  # the delivery that did not fit
        self._withdrawing = False
        self._stopping = False

    # -- the fetcher's side

    def offer(self, delivery: Delivery) -> bool:
        """Queue a whole delivery; False, and nothing taken, when it does not fit now."""
        with self._lock:
            if not self._room.fits(delivery):
                self._hold(delivery)
                return False
            self._held = None
            self._room.take(delivery)
            now = self._clock()
            woken = 0
            for unit, chunk in delivery.parts:
                chunk.enqueued = now
                unit.push(chunk)
                if unit.state in (UnitState.IDLE, UnitState.WAITING):
                    woken += self._arrange(unit)
            self._idle.wake(woken)
            return True

    def wait_for_space(self, timeout: float) -> bool:
        """True as soon as the delivery that was refused would fit; False after `timeout` seconds."""
        with self._lock:
            if self._held is None or self._room.fits(self._held):
                return True
            return self._space.wait(timeout)

    def forget_held(self) -> None:
        """The held delivery is not coming back."""
        with self._lock:
            self._held = None

    def withdraw(self, units: Iterable[Unit], gone: set[Assignment], timeout: float) -> list[str]:
        """Forget what the units hold of partitions that leave, and wait until their running batches ended.

        Mark the assignments closed first. Returns the tables still running after `timeout` seconds.
        """
        with self._lock:
            self._idle.wake(sum(self._drop(unit, gone) for unit in units))
            self._withdrawing = True
            end = self._clock() + timeout
            while (running := self._running_of(gone)) and (left := end - self._clock()) > 0:
                self._settled.wait(left)
            self._withdrawing = False
            return running

    def stop(self) -> None:
        """Let no further batch begin; `take` returns None from now on."""
        with self._lock:
            self._stopping = True
            for lane in self.lanes:
                lane.condition.notify_all()
            self._space.notify_all()

    # -- the processors' side

    def take(self, number: int, finished: Work | None = None) -> Work | None:
        """The next batch for this lane's processor; waits for one. None when the lanes are stopped.

        `finished`: the batch before, when it is done (as `finish`, at one go)."""
        lane = self.lanes[number]
        with self._lock:
            if finished is not None:
                self._finish(number, finished)
            while not self._stopping:
                now = self._clock()
                if self._timers:
                    self._let_run(dict.fromkeys(self._timers.due(now)))
                if lane.ready or (self._ready and self._stealing):
                    unit = self._next_ready(lane)
                    work = unit.cut(others_wait=self._ready > 0)
                    self._turns = self._ready > 0 and unit.pace.shortened
                    unit.state = UnitState.RUNNING
                    lane.running = work
                    lane.since = now
                    if self._timers:
                        self._idle.left_for_work()
                    return work
                self._idle.wait(lane, now)
            return None

    def finish(self, number: int, work: Work) -> None:
        """The batch is done: release what it held, queue its unit again if more is there."""
        with self._lock:
            self._finish(number, work)

    def give_back(self, number: int, work: Work, *, delay: float, error: str | None = None) -> None:
        """The batch is not done: keep it, and offer it again after `delay` seconds. The processor is free."""
        with self._lock:
            unit = work.unit
            self._leave(number)
            unit.error = error
            unit.held = work
            unit.due = self._clock() + delay
            unit.state = UnitState.BACKOFF
            if work.withdrawn:
                self._unfold(unit)
            elif delay > 0:
                self._set_timer(unit)
            else:
                self._make_ready(unit)
            self._tell()

    def halt(self, number: int, work: Work, error: str) -> None:
        """A change of it failed for good: its unit stops here, still counting against the bounds."""
        with self._lock:
            unit = work.unit
            self._leave(number)
            unit.error = error
            unit.held = work
            unit.state = UnitState.HALTED
            if work.withdrawn:
                self._unfold(unit)
            self._tell()

    def unblock(self) -> None:
        """A target is back: whoever waits for one may look again at once."""
        with self._lock:
            self._let_run(self._timers.blocked())

    def shorten(self, number: int, work: Work, records: int) -> Work:
        """Cut a running batch after its first `records`; the rest goes back to the front of its queue."""
        with self._lock:
            work.unit.push_back(work.unfinished_chunks(records))
            self.lanes[number].running = first = work.head(records)
            return first

    @property
    def queued(self) -> int:
        """Records queued and running, of all lanes, at about this moment."""
        return sum(lane.records for lane in self.lanes)

    @property
    def pressed(self) -> bool:
        """A delivery waits because it does not fit."""
        return self._held is not None

    def idle(self) -> bool:
        """No batch is running."""
        with self._lock:
            return all(lane.running is None for lane in self.lanes)

    def dead_end(self, units: Iterable[Unit]) -> bool:
        """A delivery waits for room that only halted tables could give."""
        with self._lock:
            still = (UnitState.IDLE, UnitState.HALTED)
            return self._held is not None and all(unit.state in still for unit in units)

    @property
    def lock(self) -> threading.Lock:
        """For those who look at several lanes or units at one moment."""
        return self._lock

    # -- under the lock

    def _hold(self, delivery: Delivery) -> None:
        """Nothing more comes until there is room, so nobody may wait for a fuller batch."""
        self._held = delivery
        self._let_run(self._timers.waiting())

    def _arrange(self, unit: Unit) -> int:
        """Make a unit with something queued ready, or let it gather. 1 if it became ready."""
        if not unit.chunks:
            return 0
        wait = unit.table.max_wait
        if wait <= 0 or self._held is not None or unit.full(self._room.max_records):
            self._make_ready(unit)
            return 1
        if unit.state is not UnitState.WAITING:
            unit.state = UnitState.WAITING
            unit.due = unit.chunks[0].enqueued + wait
            self._set_timer(unit)
        return 0

    def _make_ready(self, unit: Unit) -> None:
        unit.state = UnitState.READY
        self._tickets += 1
        unit.ticket = self._tickets
        self.lanes[unit.lane].ready.append(unit)
        self._ready += 1

    def _set_timer(self, unit: Unit) -> None:
        self._timers.add(unit)
        self._idle.timer_set(unit.due)

    def _let_run(self, units: Collection[Unit]) -> None:
        for unit in units:
            self._make_ready(unit)
        self._idle.wake(len(units))

    def _next_ready(self, lane: Lane) -> Unit:
        """The head of this lane's queue, or else of another's; there is a ready unit somewhere."""
        if self._stealing and (self._turns or not lane.ready):
            lane = longest_waiting(self.lanes) if self._turns else fullest(self.lanes)
        self._ready -= 1
        return lane.ready.popleft()

    def _finish(self, number: int, work: Work) -> None:
        unit = work.unit
        unit.pace.ran(work.records, self._leave(number))
        unit.error = None
        self._room.release(unit, work.records, work.bytes)
        unit.state = UnitState.IDLE
        if unit.chunks:
            self._arrange(unit)
        if self._withdrawing or self._held is not None:
            self._tell()

    def _leave(self, number: int) -> float:
        lane = self.lanes[number]
        lane.running = None
        elapsed = self._clock() - lane.since
        lane.busy_seconds += elapsed
        return elapsed

    def _tell(self) -> None:
        if self._withdrawing:
            self._settled.notify_all()
        if self._held is not None and self._room.fits(self._held):
            self._space.notify_all()

    def _running_of(self, gone: set[Assignment]) -> list[str]:
        return [lane.running.unit.table.label for lane in self.lanes if lane.running and lane.works_on(gone)]

    def _drop(self, unit: Unit, gone: set[Assignment]) -> int:
        """1 if the unit became ready by it."""
        woken = 0
        if unit.held is not None and any(chunk.assignment in gone for chunk in unit.held.chunks):
            woken = self._unfold(unit)
        self._room.release(unit, *unit.drop(gone))
        if not unit.chunks and unit.held is None and unit.state in (UnitState.READY, UnitState.WAITING):
            if unit.state is UnitState.READY:
                self.lanes[unit.lane].ready.remove(unit)
                self._ready -= 1
            unit.state = UnitState.IDLE
            woken = 0
        return woken

    def _unfold(self, unit: Unit) -> int:
        """Turn a kept batch, some of whose partitions left, back into queued records. 1: it became ready."""
        self._room.release(unit, *unit.unfold())
        if unit.state is UnitState.READY:
            return 0
        unit.state = UnitState.IDLE
        unit.error = None
        return self._arrange(unit)
