"""What lanes hold, and how it looks from outside: figures for the status, the main thread and the fetcher."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from worker.formats.decoding import SMALL
from worker.lanes.lane import Lane, Room
from worker.lanes.schedule import Schedule
from worker.lanes.snapshot import LanesView, glance, look
from worker.lanes.standing import Standing
from worker.units.assigned_partition import Assignment
from worker.units.chunk import Chunk
from worker.units.delivery import Delivery
from worker.units.unit import Unit, UnitState
from worker.units.work import Work

if TYPE_CHECKING:
    from worker.configuration import LanesRule

_MOSTLY = 0.9
"""Of the latest batches. If more than a tenth are slow, and take 50 ms, batches wait for a free lane rather
than for the interpreter."""


class SeenLanes:
    """The state of `Lanes`, as any thread may look at it. Nothing here begins or ends a batch."""

    def __init__(self, rule: LanesRule, clock: Callable[[], float]) -> None:
        # Guards every lane, every unit's queue and state, the schedule, and what stands below. Held for
        # microseconds: handlers never run under it.
        self._lock = threading.Lock()
        self.lanes = [Lane(number, self._lock) for number in range(rule.count)]
        self._space = threading.Condition(self._lock)  # told when the refused delivery fits
        self._settled = threading.Condition(self._lock)  # told when a batch ends while partitions leave
        self._room = Room(self.lanes, rule.max_records, rule.max_bytes)
        self._stealing = rule.work_stealing
        self._clock = clock
        self._schedule = Schedule(self.lanes, self._room, stealing=rule.work_stealing)
        self._refused: Delivery | None = None  # the delivery that did not fit
        self._halted: dict[Unit, None] = {}  # those that halted, until somebody asks: some went on since
        self._quick_share = 0.0  # of the latest batches
        self._withdrawing = False
        self._stopping = False
        self._trusted_until = float("inf")  # no batch begins from then on: see `Lanes.trust`

    @property
    def most_decoded(self) -> int:
        """Bytes that one record may take when it is decoded."""
        return max(self._room.max_bytes, SMALL)

    def running(self) -> list[Work]:
        """The batches that run."""
        with self._lock:
            return [lane.running for lane in self.lanes if lane.running]

    @property
    def count(self) -> int:
        """Lanes in use."""
        return self._schedule.count

    @property
    def queued(self) -> int:
        """Records queued and running, of all lanes, at about this moment."""
        return sum(lane.records for lane in self.lanes)

    @property
    def has_much_to_do(self) -> bool:
        """Each processor finds its next two batches, and most are too quick to gain by being fuller. At about
        this moment."""
        schedule = self._schedule
        if self._quick_share < _MOSTLY:
            return False
        if self._stealing:
            return schedule.ready > 2 * schedule.count
        return all(len(lane.ready) > 1 for lane in self.lanes[: schedule.count])

    @property
    def spread_bytes(self) -> int:
        """Of records whose rows wait or run in shards, as they were fetched."""
        return self._room.spread

    @property
    def pressed(self) -> bool:
        """A delivery waits because it does not fit."""
        return self._refused is not None

    @property
    def finished_records(self) -> int:
        """Of all tables so far, at about this moment."""
        return sum(lane.finished_records for lane in self.lanes) + self._schedule.finished_records

    def halted(self) -> list[str]:
        """The tables of which a change failed for good."""
        with self._lock:
            self._halted = {unit: None for unit in self._halted if unit.state is UnitState.HALTED}
            return list(dict.fromkeys(unit.table.label for unit in self._halted))

    def snapshot(self, units: Sequence[Unit], most: int, stuck_after: float = math.inf) -> LanesView:
        """Lanes and tables as they are now; of the tables at most so many. Any thread.

        `stuck_after`: a table also stands still when a batch of it has been failing for so many seconds."""
        now = self._clock()
        standing = Standing(self._room, now - stuck_after)
        view = look(
            self.lanes,
            units,
            self._schedule.kept,
            count=self.count,
            now=now,
            lock=self._lock,
            most=most,
            standing=standing,
            bounds=self._room,
        )
        return view._replace(blocked_records=standing.records, held_up=standing.keeps_out(self._refused))

    def glance(self, units: Sequence[Unit]) -> tuple[frozenset[str], list[Chunk]]:
        """The tables that stand still, and all that is unfinished. Any thread."""
        return glance(self.lanes, units, self._schedule.kept, self._lock)

    def dead_end(self) -> bool:
        """A delivery waits for room that only halted tables could give."""
        with self._lock:
            if self._refused is None or self._room.fits(self._refused):
                return False
            return self._schedule.quiescent

    def worked_off(self) -> bool:
        """All that came is done, but for halted tables. Nobody waits any longer for a fuller batch."""
        with self._lock:
            self._schedule.let_run(self._schedule.timers.waiting())
            self._schedule.wake()
            return self._refused is None and self._schedule.quiescent

    @property
    def lock(self) -> threading.Lock:
        """For those who look at several lanes or units at one moment."""
        return self._lock

    @property
    def schedule(self) -> Schedule:
        """For those who hold the lock."""
        return self._schedule

    # -- under the lock

    def _running(self, number: int, work: Work) -> Lane:
        """The lane that runs this batch. RuntimeError, and nothing done: it ended before, or is another's."""
        lane = self.lanes[number]
        if lane.running is not work:
            raise RuntimeError(f"lane {number} does not run this batch of {work.unit.table.label} (any more)")
        return lane

    def _leave(self, number: int, work: Work, how: str, now: float) -> float:
        """Returns when it began; `how` it ended: see `Lane.batches`."""
        lane = self._running(number, work)
        lane.batches[how] += 1
        lane.running = None
        lane.busy_seconds += now - lane.since
        return lane.since

    def _forget_refused(self) -> None:
        self._refused = None
        self._schedule.pressed = False

    def _tell(self) -> None:
        if self._withdrawing:
            self._settled.notify_all()
        if self._refused is not None and self._room.fits(self._refused):
            self._space.notify_all()

    def _running_of(self, gone: set[Assignment]) -> list[str]:
        running = [lane.running.unit for lane in self.lanes if lane.running and lane.works_on(gone)]
        return list(dict.fromkeys(unit.table.label for unit in running))
