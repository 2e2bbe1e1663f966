"""Lanes: bounded queues between the fetcher and the processors, work conserving and in order per unit.

put (`offer`), `take`, `finish`, `give_back`: the four verbs of the interface. A unit (a table; with order by
row a shard of one) has at most one batch running; an idle processor takes a whole ready unit from the fullest
lane, so that one hot lane never leaves the others idle. What was taken ends once: to finish, give back, halt
or spread it again is refused (RuntimeError), for what it held may be released already.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from worker.lanes.batch_cutting import keep_orders
from worker.lanes.lane import Lane, Room
from worker.lanes.schedule import Schedule
from worker.lanes.seen_lanes import SeenLanes
from worker.units.assigned_partition import Assignment
from worker.units.delivery import Delivery
from worker.units.rows.spreading import Spread
from worker.units.unit import Unit, UnitState
from worker.units.work import Work

if TYPE_CHECKING:
    from worker.configuration import LanesRule
    from worker.units.table import Table


class Lanes:
    """All lanes of a worker. Bounds: `max_records` queued and running of each lane, `max_bytes` of all
    together.

    This object owns the lock, and changes nothing without it. `room` owns what counts against the bounds and
    the delivery that waits for room, `schedule` which units are ready, timed or keep a batch, and a lane its
    queue and the batch that runs.
    """

    def __init__(self, rule: LanesRule, clock: Callable[[], float]) -> None:
        self.lock = threading.Lock()
        """Guards every lane, every unit's queue and state, and what stands below. Held for microseconds:
        handlers never run under it."""
        self.lanes = [Lane(number, self.lock) for number in range(rule.count)]
        self.room = Room(self.lanes, rule, self.lock)
        self.schedule = Schedule(self.lanes, self.room, stealing=rule.work_stealing)
        self.seen = SeenLanes(self.lock, self.lanes, self.room, self.schedule, clock)
        self._settled = threading.Condition(self.lock)  # told when a batch ends while partitions leave
        self._clock = clock
        self._withdrawing = False
        self._stopping = False
        self._trusted_until = float("inf")  # no batch begins from then on: see `trust`

    @property
    def count(self) -> int:
        """Lanes in use."""
        return self.schedule.ready.count

    # -- the fetcher's side

    def offer(self, delivery: Delivery) -> bool:
        """Queue a whole delivery; False, and nothing taken, when it does not fit now."""
        with self.lock:
            schedule = self.schedule
            if not self.room.take(delivery):
                schedule.hurry()
                return False
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
        with self.lock:
            return self.room.wait(timeout)

    def forget_refused(self) -> None:
        """The refused delivery is not coming back."""
        with self.lock:
            self.room.forget()

    def worked_off(self) -> bool:
        """All that came is done, but for halted tables. Nobody waits any longer for a fuller batch."""
        with self.lock:
            self.schedule.hurry()
            return self.room.refused is None and self.schedule.quiescent

    def withdraw(self, units: Iterable[Unit], gone: set[Assignment], timeout: float) -> list[str]:
        """Forget what the units hold of partitions that leave, marked closed before, and wait until their
        running batches ended. Returns the tables still running after `timeout` seconds.

        The fetcher's thread only: nothing is offered meanwhile."""
        with self.lock:
            units = [unit for unit in units if not unit.at_rest]
            self.room.without(gone)
            self.schedule.drop(units, gone)
            self.schedule.wake()
            self._withdrawing = True
            end = self._clock() + timeout
            while (running := self._running_of(gone)) and (left := end - self._clock()) > 0:
                self._settled.wait(left)
            self._withdrawing = False
            self.schedule.forget(units, gone)
            self.schedule.wake()
            return running

    def resize(self, rule: LanesRule, home: Callable[[Unit], int], units: Iterable[Unit]) -> list[int]:
        """Other lanes and bounds, while batches run. `home`: the lane of a table; `units`: all of them.

        Returns the lanes that need a processor. The fetcher's thread only: what it holds must be counted anew
        (`Delivery.recount`)."""
        with self.lock:
            first, lanes = len(self.lanes), self.lanes
            lanes.extend(Lane(number, self.lock) for number in range(first, rule.count))
            self.room.bound(rule)
            self.schedule.rehome(rule.count, home, units, stealing=rule.work_stealing)
            self.schedule.look_again()
            self._wake_all()
            free = [lane for lane in lanes[: rule.count] if lane.number >= first or not lane.manned]
            for lane in free:
                lane.manned = True
            return [lane.number for lane in free]

    def give_tables(self, changed: Iterable[tuple[Unit, Table]]) -> None:
        """Other rules and handlers: for a batch that runs from its next attempt on."""
        with self.lock:
            for unit, table in changed:
                self.schedule.give_table(unit, table)
            self.schedule.look_again()

    def at_rest(self, units: Iterable[Unit]) -> list[Unit]:
        """Those that hold and run nothing. The fetcher's thread: it stays so until that offers something."""
        with self.lock:
            return [unit for unit in units if unit.at_rest]

    def trust(self, until: float) -> None:
        """The partitions are this worker's until then, by the clock: no batch, and no further attempt, begins
        later, until this is called again. Any thread."""
        with self.lock:
            closed, self._trusted_until = self._clock() >= self._trusted_until, until
            if closed:
                self._wake_all()

    @property
    def trusted(self) -> bool:
        """Whether a batch may begin now."""
        return self._clock() < self._trusted_until

    def stop(self) -> None:
        """Let no further batch begin; `take` returns None from now on."""
        with self.lock:
            self._stopping = True
            self._wake_all()
            self.room.stop()

    # -- the processors' side

    def take(self, number: int, finished: Work | None = None) -> Work | None:
        """The next batch for this lane's processor; waits for one. None when the lanes are stopped.

        `finished`: the batch before, when it is done (as `finish`, at one go)."""
        lane = self.lanes[number]
        ended = self._clock()  # before the lock: who waits for it would look like a slow handler
        with self.lock:
            now = self._clock()
            if finished is not None:
                self._finish(number, finished, ended, now)
            schedule = self.schedule
            timers = schedule.timers
            while not self._stopping:
                if number >= schedule.ready.count:
                    schedule.retire(lane)
                    return None
                if timers:
                    schedule.let_run(timers.due(now))
                    schedule.wake()
                if now >= self._trusted_until:
                    lane.condition.wait()
                elif lane.ready or (schedule.ready and schedule.ready.stealing):
                    unit = schedule.ready.next(lane)
                    work = schedule.cut(unit)
                    schedule.ready.took(shortened=work.shortened)
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
        with self.lock:
            self._finish(number, work, ended, self._clock())

    def give_back(self, number: int, work: Work, *, delay: float, error: str | None = None) -> None:
        """The batch is not done: keep it, and offer it again after `delay` seconds. The processor is free."""
        with self.lock:
            self._keep(number, work, "given_back", error, delay=delay)

    def halt(self, number: int, work: Work, error: str) -> None:
        """A change of it failed for good: its unit stops here, still counting against the bounds."""
        with self.lock:
            self._keep(number, work, "halted", error)

    def unblock(self) -> None:
        """A target is back: whoever waits for one may look again at once."""
        with self.lock:
            self.schedule.let_run(self.schedule.timers.blocked())
            self.schedule.wake()

    def shorten(self, number: int, work: Work, records: int) -> Work:
        """Cut a running batch after its first `records`; the rest goes back to the front of its queue."""
        with self.lock:
            lane = self.lanes[number]
            lane.runs(work)
            keep_orders(work, records)
            self.schedule.put_back(work.unit, work.unfinished_chunks(records))
            lane.running = first = work.head(records)
            return first

    def spread(self, number: int, work: Work, spread: Spread) -> None:
        """The batch of a table in row order is decoded: queue its rows in their shards."""
        with self.lock:
            unit, schedule = work.unit, self.schedule
            self.lanes[number].end(work, "spread", self._clock())
            unit.mended()
            self.room.release(unit, spread.records, spread.bytes)
            schedule.spread(unit, spread.parts)
            unit.state = UnitState.IDLE  # not before its shards have what it had: see Unit.at_rest
            schedule.put_back(unit, spread.rest)
            schedule.arrange(unit)
            schedule.wake(by_processor=True)
            self._tell()

    # -- under the lock

    def _finish(self, number: int, work: Work, ended: float, now: float) -> None:
        """`ended`: when its handlers were through; `now`: when its lane is free."""
        unit, schedule = work.unit, self.schedule
        seconds = ended - self.lanes[number].end(work, "finished", now)
        unit.turns.ran(work.records, seconds, shortened=work.shortened)
        schedule.ready.ran(seconds)
        if unit.error is not None:
            unit.mended()
        unit.state = UnitState.IDLE
        if unit.shard is not None or work.chunks[0].alone:
            schedule.settle(unit, work)
        else:  # as most are, at the least cost
            self.room.release(unit, work.records, work.bytes)
            if unit.chunks:
                schedule.arrange(unit)
        schedule.wake(by_processor=True)
        if self._withdrawing or self.room.refused is not None:
            self._tell()

    def _keep(
        self, number: int, work: Work, how: str, error: str | None, *, delay: float | None = None
    ) -> None:
        """`delay`: seconds until the batch is offered again; None: never."""
        unit, schedule, now = work.unit, self.schedule, self._clock()
        self.lanes[number].end(work, how, now)
        if unit.error is None:
            unit.failing_since = now
        unit.error = error
        schedule.kept[unit] = work
        unit.state = UnitState.HALTED if delay is None else UnitState.BACKOFF
        if work.withdrawn:
            schedule.unfold(unit)
        else:
            if delay is not None and delay > 0:
                schedule.set_timer(unit, now + delay)
            elif delay is not None:  # its lane may be another's by now
                schedule.let_run((unit,))
            schedule.let_others_go_on(unit)
        schedule.wake(by_processor=True)
        self._tell()

    def _wake_all(self) -> None:
        for lane in self.lanes:
            lane.condition.notify_all()

    def _tell(self) -> None:
        """A batch has ended."""
        if self._withdrawing:
            self._settled.notify_all()
        self.room.look()

    def _running_of(self, gone: set[Assignment]) -> list[str]:
        running = [lane.running.unit for lane in self.lanes if lane.running and lane.works_on(gone)]
        return list(dict.fromkeys(unit.table.label for unit in running))
