"""Lanes: bounded queues between the fetcher and the processors, work conserving and in order per unit.

The interface has four verbs: put (`offer`), `take`, `finish`, `give_back`. A unit (a table, or with order by
row a shard of one) has at most one running batch. An idle processor takes a ready unit from the fullest lane,
so one busy lane never leaves the others idle. Each batch is ended exactly once. Ending it again raises
RuntimeError, because its records and bytes may already be released."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable

from worker.configuration import LanesRule
from worker.lanes.batch_cutting import keep_orders, mark_tail
from worker.lanes.lane import Lane, Room
from worker.lanes.parking import ParkedUnits
from worker.lanes.schedule import Schedule
from worker.lanes.seen_lanes import SeenLanes
from worker.units.assigned_partition import Assignment
from worker.units.delivery import Delivery
from worker.units.sharding import Spread
from worker.units.table import Table
from worker.units.unit import Unit, UnitState
from worker.units.work import Work


class Lanes:
    """All lanes of a worker. `max_records` bounds the queued and running records of each lane, `max_bytes`
    the bytes of all lanes together.

    Changes nothing without its lock. `schedule` knows units that are ready, have a timer or keep a batch."""

    def __init__(self, rule: LanesRule, clock: Callable[[], float]) -> None:
        self.lock = threading.Lock()
        """Guards every lane, every unit's queue and state, and the attributes below. Held for microseconds:
        no handler runs under it."""
        self.lanes = [Lane(number, self.lock) for number in range(rule.count)]
        self.room = Room(self.lanes, rule, self.lock)
        self.schedule = Schedule(self.lanes, self.room, rule, self.lock, clock)
        self.parked = ParkedUnits(self.lock, self.room, self.schedule.kept, self.schedule.made_room)
        self.seen = SeenLanes(self.lock, self.lanes, self.room, self.schedule, clock)
        self._settled = threading.Condition(self.lock)  # notified if a batch ends during a revocation
        self._clock = clock
        self._withdrawing = False
        self._stopping = False
        self.trusted_until = math.inf
        """No batch starts from then on (clock time): see `trust`. Any thread may read it."""

    # -- the fetcher's side

    def offer(self, delivery: Delivery) -> bool:
        """Queue a whole delivery. If it does not fit now, take nothing and return False."""
        with self.lock:
            schedule = self.schedule
            if not self.room.take(delivery):
                schedule.hurry()
                return False
            now = self._clock()
            for known, queued in delivery.queued:
                known.queued = queued
            for unit, chunk in delivery.parts:
                chunk.enqueued = unit.used = now
                unit.push(chunk)
                if unit.state in (UnitState.IDLE, UnitState.GATHERING):
                    schedule.arrange(unit)
            if delivery.is_last:
                schedule.taken = now
            if delivery.queued:
                schedule.look_for_ends()
            schedule.wake()
            return True

    def wait_for_space(self, timeout: float) -> bool:
        """Return True as soon as the refused delivery would fit, or False after `timeout` seconds."""
        with self.lock:
            return self.room.wait(timeout)

    def forget_refused(self) -> None:
        """Forget the refused delivery, because it is not offered again."""
        with self.lock:
            self.room.forget()

    def worked_off(self) -> bool:
        """Whether everything is finished, except in halted or paused tables. Units that gather run now."""
        with self.lock:
            self.schedule.hurry()
            return self.room.refused is None and self.schedule.quiescent

    def withdraw(self, units: Iterable[Unit], gone: set[Assignment], timeout: float) -> list[str]:
        """Forget the units' records of revoked partitions, which are already marked closed, and wait for
        their running batches. Returns the tables that still run after `timeout` seconds.

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
        """Change the lanes and bounds while batches run. `home`: the lane of a table. `units`: all of them.

        Returns the lanes that need a processor. The fetcher's thread only. It must then count its pending
        delivery again (`Delivery.recount`)."""
        with self.lock:
            first, lanes = len(self.lanes), self.lanes
            lanes.extend(Lane(number, self.lock) for number in range(first, rule.count))
            self.room.bound(rule)
            self.schedule.rehome(rule, home, units)
            self.schedule.look_again()
            self._wake_all()
            free = [lane for lane in lanes[: rule.count] if lane.number >= first or not lane.manned]
            for lane in free:
                lane.manned = True
            return [lane.number for lane in free]

    def give_tables(self, changed: Iterable[tuple[Unit, Table]]) -> None:
        """Set other rules and handlers. A running batch uses them from its next attempt on."""
        with self.lock:
            for unit, table in changed:
                self.schedule.give_table(unit, table)
            self.schedule.look_again()

    def at_rest(self, units: Iterable[Unit]) -> list[Unit]:
        """Return units without records and batches. The fetcher's thread: no other adds any."""
        with self.lock:
            return [unit for unit in units if unit.at_rest]

    def trust(self, until: float) -> None:
        """Allow batches and attempts to start until `until` (clock time). Later starts wait for the next
        call. Any thread."""
        with self.lock:
            closed, self.trusted_until = self._clock() >= self.trusted_until, until
            if closed:
                self._wake_all()

    @property
    def trusted(self) -> bool:
        """Whether a batch may start now."""
        return self._clock() < self.trusted_until

    def stop(self) -> None:
        """Start no further batch. `take` returns None from now on."""
        with self.lock:
            self._stopping = True
            self._wake_all()
            self.room.stop()

    # -- the processors' side

    def take(self, number: int, finished: Work | None = None) -> Work | None:
        """Wait for the next batch for this lane's processor, and return it. None if the lanes are stopped.

        `finished`: the previous batch, if it is finished (as `finish`, under the same lock)."""
        lane = self.lanes[number]
        ended = self._clock()  # before the lock: otherwise the wait for it would count as the handler's time
        with self.lock:
            now = self._clock()
            if finished is not None:
                self._finish(number, finished, ended, now)
            schedule = self.schedule
            timers = schedule.timers
            while not self._stopping:
                if number >= schedule.ready.count:
                    schedule.idle.retire(lane)
                    return None
                if timers:
                    schedule.ran_out(now)
                    schedule.wake()
                if now >= self.trusted_until:
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
        """End a finished batch: release its room, and queue its unit again if it has more records."""
        ended = self._clock()
        with self.lock:
            self._finish(number, work, ended, self._clock())

    def give_back(self, number: int, work: Work, *, delay: float, error: str | None = None) -> None:
        """Keep an unfinished batch, and offer it again after `delay` seconds. This frees the processor.

        Infinity: when a limit allows one of its runs a call."""
        with self.lock:
            self._keep(number, work, "given_back", error, delay=delay)

    def halt(self, number: int, work: Work, error: str) -> None:
        """A change failed permanently: halt its unit. Its records still count against the bounds."""
        with self.lock:
            self._keep(number, work, "halted", error)

    def unblock(self, *, pauses: bool = False) -> None:
        """A target is back, or `pauses` have changed: let all units retry at once that wait for a target or a
        resume. Those that only wait for a limit look whether they are paused now."""
        with self.lock:
            for unit in self.schedule.kept:
                limited = unit.state is UnitState.LIMITED
                if (limited or unit.state is UnitState.BACKOFF) and (unit.blocked or (limited and pauses)):
                    self.schedule.let_run((unit,))
            self.schedule.wake()

    def shorten(self, number: int, work: Work, records: int) -> Work:
        """Cut a running batch after its first `records`, and put the rest back at the front of its queue."""
        with self.lock:
            lane = self.lanes[number]
            lane.runs(work)
            keep_orders(work, records)
            self.schedule.put_back(work.unit, work.unfinished_chunks(records))
            lane.running = first = work.head(records)
            mark_tail(first)
            return first

    def spread(self, number: int, work: Work, spread: Spread) -> None:
        """Queue the decoded rows of a batch in their table's shards (`order_by: row`)."""
        with self.lock:
            unit, schedule = work.unit, self.schedule
            self.lanes[number].end(work, "spread", self._clock())
            unit.mended()
            self.room.release(unit, spread.records, spread.bytes)
            schedule.spread(unit, spread.parts)
            unit.state = UnitState.IDLE  # not before its shards have the records: see Unit.at_rest
            schedule.put_back(unit, spread.rest)
            schedule.arrange(unit)
            schedule.wake(by_processor=True)
            self._tell()

    # -- under the lock

    def _finish(self, number: int, work: Work, ended: float, now: float) -> None:
        """`ended`: when its handlers had finished. `now`: when its lane is free."""
        unit, schedule = work.unit, self.schedule
        seconds = ended - self.lanes[number].end(work, "finished", now)
        unit.turns.ran(work.records, seconds, shortened=work.shortened)
        schedule.ready.ran(seconds)
        if unit.error is not None:
            unit.mended()
        unit.state = UnitState.IDLE
        if unit.shard is not None or work.chunks[0].alone:
            schedule.settle(unit, work)
        else:  # most batches, by the cheapest path
            self.room.release(unit, work.records, work.bytes)
            if unit.chunks:
                schedule.arrange(unit)
        schedule.wake(by_processor=True)
        if self._withdrawing or self.room.refused is not None:
            self._tell()

    def _keep(
        self, number: int, work: Work, how: str, error: str | None, *, delay: float | None = None
    ) -> None:
        """`delay`: seconds until the batch is offered again. None: never."""
        unit, schedule, now = work.unit, self.schedule, self._clock()
        self.lanes[number].end(work, how, now)
        unit.stands_since = now if unit.error is None else unit.stands_since
        unit.error = error
        schedule.kept[unit] = work
        unit.state = UnitState.HALTED if delay is None else UnitState.BACKOFF
        if work.withdrawn:
            schedule.unfold(unit)
        else:
            limited = delay == math.inf and work.table is unit.table  # else its handlers have changed
            schedule.permits.hold(work, wait=limited)
            if delay is not None and 0 < delay < math.inf:
                schedule.set_timer(unit, now + delay)
            elif delay is not None and not limited:  # its lane may belong to another processor by now
                schedule.let_run((unit,))
            schedule.let_others_go_on(unit)
        schedule.wake(by_processor=True)
        self._tell()

    def _wake_all(self) -> None:
        for lane in self.lanes:
            lane.condition.notify_all()

    def _tell(self) -> None:
        """A batch has ended: notify the threads that wait for this."""
        if self._withdrawing:
            self._settled.notify_all()
        self.room.look()

    def _running_of(self, gone: set[Assignment]) -> list[str]:
        running = [lane.running.unit for lane in self.lanes if lane.running and lane.works_on(gone)]
        return list(dict.fromkeys(unit.table.label for unit in running))
