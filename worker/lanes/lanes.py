"""Lanes: bounded queues between the fetcher and the processors, work conserving and in order per unit.

put (`offer`), `take`, `finish`, `give_back`: the four verbs of the interface. A unit (a table; with order by
row a shard of one) has at most one batch running; an idle processor takes a whole ready unit from the fullest
lane, so that one hot lane never leaves the others idle. What was taken ends once: to finish, give back, halt
or spread it again is refused (RuntimeError), for what it held may be released already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from worker.lanes.batch_cutting import keep_orders
from worker.lanes.lane_changes import give_tables, resize
from worker.lanes.seen_lanes import SeenLanes
from worker.units.assigned_partition import Assignment
from worker.units.delivery import Delivery
from worker.units.rows.spreading import Spread
from worker.units.turns import QUICK_SECONDS
from worker.units.unit import Unit, UnitState
from worker.units.work import Work

if TYPE_CHECKING:
    from worker.configuration import LanesRule
    from worker.units.table import Table

_OF_ONE_BATCH = 0.005
"""What each batch weighs in the share of quick ones: the last 500 tell nearly all."""


class Lanes(SeenLanes):
    """All lanes of a worker. Bounds: `max_records` queued and running of each lane, `max_bytes` of all
    together."""

    # -- the fetcher's side

    def offer(self, delivery: Delivery) -> bool:
        """Queue a whole delivery; False, and nothing taken, when it does not fit now."""
        with self._lock:
            schedule = self._schedule
            if not self._room.fits(delivery):
                self._refused = delivery
                self._room.refuse(delivery)
                schedule.pressed = True
                schedule.let_run(schedule.timers.waiting())
                schedule.wake()
                return False
            self._forget_refused()
            self._room.take(delivery)
            now = self._clock()
            for unit, chunk in delivery.parts:
                chunk.enqueued = unit.used = now
                unit.push(chunk)
                if unit.state in (UnitState.IDLE, UnitState.GATHERING):
                    schedule.arrange(unit)
            schedule.wake()
            return True

    def wait_for_space(self, timeout: float) -> bool:
        """True as soon as the delivery that was refused would fit; False after `timeout` seconds."""
        with self._lock:
            if self._refused is None or self._room.fits(self._refused):
                return True
            return self._space.wait(timeout)

    def forget_refused(self) -> None:
        """The refused delivery is not coming back."""
        with self._lock:
            self._forget_refused()

    def withdraw(self, units: Iterable[Unit], gone: set[Assignment], timeout: float) -> list[str]:
        """Forget what the units hold of partitions that leave, marked closed before, and wait until their
        running batches ended. Returns the tables still running after `timeout` seconds.

        The fetcher's thread only: nothing is offered meanwhile."""
        with self._lock:
            units = [unit for unit in units if not unit.at_rest]
            if self._refused is not None:
                self._refused = self._refused.without(gone)
                if not self._refused.parts:
                    self._forget_refused()
            self._schedule.drop(units, gone)
            self._schedule.wake()
            self._withdrawing = True
            end = self._clock() + timeout
            while (running := self._running_of(gone)) and (left := end - self._clock()) > 0:
                self._settled.wait(left)
            self._withdrawing = False
            self._schedule.forget(units, gone)
            self._schedule.wake()
            return running

    def resize(self, rule: LanesRule, home: Callable[[Unit], int], units: Iterable[Unit]) -> list[int]:
        """Other lanes and bounds, while batches run. `home`: the lane of a table; `units`: all of them.

        Returns the lanes that need a processor. The fetcher's thread only: what it holds must be counted anew
        (`Delivery.recount`)."""
        with self._lock:
            self._stealing = rule.work_stealing
            free = resize(
                self.lanes, rule, self._room, self._schedule, home=home, units=units, lock=self._lock
            )
            self._space.notify_all()
            return free

    def give_tables(self, changed: Iterable[tuple[Unit, Table]]) -> None:
        """Other rules and handlers: for a batch that runs from its next attempt on."""
        with self._lock:
            give_tables(changed, self._schedule)

    def at_rest(self, units: Iterable[Unit]) -> list[Unit]:
        """Those that hold and run nothing. The fetcher's thread: it stays so until that offers something."""
        with self._lock:
            return [unit for unit in units if unit.at_rest]

    def trust(self, until: float) -> None:
        """The partitions are this worker's until then, by the clock: no batch, and no further attempt, begins
        later, until this is called again. Any thread."""
        with self._lock:
            closed, self._trusted_until = self._clock() >= self._trusted_until, until
            if closed:
                for lane in self.lanes:
                    lane.condition.notify_all()

    @property
    def trusted(self) -> bool:
        """Whether a batch may begin now."""
        return self._clock() < self._trusted_until

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
        ended = self._clock()  # before the lock: who waits for it would look like a slow handler
        with self._lock:
            now = self._clock()
            if finished is not None:
                self._finish(number, finished, ended, now)
            schedule = self._schedule
            timers = schedule.timers
            while not self._stopping:
                if number >= schedule.count:
                    schedule.retire(lane)
                    return None
                if timers:
                    schedule.let_run(dict.fromkeys(timers.due(now)))
                    schedule.wake()
                if now >= self._trusted_until:
                    lane.condition.wait()
                elif lane.ready or (schedule.ready and self._stealing):
                    unit = schedule.next_ready(lane)
                    work = schedule.cut(unit)
                    schedule.turns = schedule.ready > 0 and work.shortened
                    unit.state = UnitState.RUNNING
                    lane.running = work
                    lane.since = now
                    if timers:
                        schedule.idle.left_for_work()
                    return work
                else:
                    schedule.idle.wait(lane, now)
                now = self._clock()
            return None

    def finish(self, number: int, work: Work) -> None:
        """The batch is done: release what it held, queue its unit again if more is there."""
        ended = self._clock()
        with self._lock:
            self._finish(number, work, ended, self._clock())

    def give_back(self, number: int, work: Work, *, delay: float, error: str | None = None) -> None:
        """The batch is not done: keep it, and offer it again after `delay` seconds. The processor is free."""
        with self._lock:
            unit, schedule, now = work.unit, self._schedule, self._clock()
            self._leave(number, work, "given_back", now)
            if unit.error is None:
                unit.failing_since = now
            unit.error = error
            schedule.kept[unit] = work
            unit.due = now + delay
            unit.state = UnitState.BACKOFF
            if work.withdrawn:
                schedule.unfold(unit)
            else:
                if delay > 0:
                    schedule.set_timer(unit)
                else:  # its lane may be another's by now
                    schedule.let_run((unit,))
                schedule.let_others_go_on(unit)
            schedule.wake(by_processor=True)
            self._tell()

    def halt(self, number: int, work: Work, error: str) -> None:
        """A change of it failed for good: its unit stops here, still counting against the bounds."""
        with self._lock:
            unit, schedule = work.unit, self._schedule
            self._leave(number, work, "halted", self._clock())
            unit.error = error
            schedule.kept[unit] = work
            unit.state = UnitState.HALTED
            self._halted[unit] = None
            if work.withdrawn:
                schedule.unfold(unit)
            else:
                schedule.let_others_go_on(unit)
            schedule.wake(by_processor=True)
            self._tell()

    def unblock(self) -> None:
        """A target is back: whoever waits for one may look again at once."""
        with self._lock:
            self._schedule.let_run(self._schedule.timers.blocked())
            self._schedule.wake()

    def shorten(self, number: int, work: Work, records: int) -> Work:
        """Cut a running batch after its first `records`; the rest goes back to the front of its queue."""
        with self._lock:
            lane = self._running(number, work)
            keep_orders(work, records)
            self._schedule.put_back(work.unit, work.unfinished_chunks(records))
            lane.running = first = work.head(records)
            return first

    def spread(self, number: int, work: Work, spread: Spread) -> None:
        """The batch of a table in row order is decoded: queue its rows in their shards."""
        with self._lock:
            unit, schedule = work.unit, self._schedule
            self._leave(number, work, "spread", self._clock())
            unit.mended()
            self._room.release(unit, spread.records, spread.bytes)
            schedule.spread(unit, spread.parts)
            unit.state = UnitState.IDLE  # not before its shards have what it had: see Unit.at_rest
            schedule.put_back(unit, spread.rest)
            schedule.arrange(unit)
            schedule.wake(by_processor=True)
            self._tell()

    # -- under the lock

    def _finish(self, number: int, work: Work, ended: float, now: float) -> None:
        """`ended`: when its handlers were through; `now`: when its lane is free."""
        unit, schedule = work.unit, self._schedule
        seconds = ended - self._leave(number, work, "finished", now)
        unit.turns.ran(work.records, seconds, shortened=work.shortened)
        self._quick_share += ((seconds < QUICK_SECONDS) - self._quick_share) * _OF_ONE_BATCH
        if unit.error is not None:
            unit.mended()
        unit.state = UnitState.IDLE
        if unit.shard is not None or work.chunks[0].alone:
            schedule.settle(unit, work)
        else:  # as most are, at the least cost
            self._room.release(unit, work.records, work.bytes)
            if unit.chunks:
                schedule.arrange(unit)
        schedule.wake(by_processor=True)
        if self._withdrawing or self._refused is not None:
            self._tell()
