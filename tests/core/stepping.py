"""Threads of processors and of the fetcher that a test moves one at a time, so that every interleaving can be
had on purpose."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial

from building import Clock

from worker.lanes.lanes import Lanes
from worker.units.assigned_partition import Assignment
from worker.units.unit import Unit, UnitState
from worker.units.work import Work

__all__ = ["Doing", "SteppedProcessor", "SteppedWithdrawal", "nobody_sleeps_while_there_is_work"]

_PATIENCE = 10.0


class Doing(Enum):
    NOTHING = "it has yet to ask for work"
    WAITING = "it waits in `take`"
    WORKING = "it has a batch"
    STOPPED = "`take` gave it nothing"


class _Parking:
    """In place of a lane's condition: who waits, waits for the test."""

    def __init__(self, lock: threading.Lock, parked: queue.SimpleQueue[object], clock: Clock) -> None:
        self._lock = lock
        self._parked = parked
        self._clock = clock
        self._go = threading.Semaphore(0)
        self.waiting = False
        self.told = False
        self.until: float | None = None

    def wait(self, timeout: float | None = None) -> bool:
        self.waiting, self.told = True, False
        self.until = None if timeout is None else self._clock.now + timeout
        self._lock.release()
        self._parked.put(self)
        self._go.acquire()
        self._lock.acquire()
        self.waiting = False
        return self.told

    def notify(self, _count: int = 1) -> None:
        self.told = self.waiting or self.told

    def notify_all(self) -> None:
        self.notify()

    def resume(self) -> None:
        self._go.release()


class SteppedProcessor:
    """One lane's processor."""

    def __init__(self, lanes: Lanes, number: int, clock: Clock) -> None:
        self._lanes = lanes
        self._clock = clock
        self.number = number
        self.doing = Doing.NOTHING
        self.work: Work | None = None
        self._asked: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._parking = _Parking(lanes.lock, self._answers, clock)
        lanes.lanes[number].condition = self._parking  # type: ignore[assignment]  # the part that is used
        self._thread = threading.Thread(target=self._run, name=f"stepped-{number}", daemon=True)
        self._thread.start()

    @property
    def asleep(self) -> bool:
        """It waits, was not told to look again, and its time is not over."""
        return self.doing is Doing.WAITING and not self._parking.told and self.until > self._clock.now

    @property
    def until(self) -> float:
        """When it looks again by itself."""
        return float("inf") if self._parking.until is None else self._parking.until

    def step(self) -> None:
        """Ask for work, or look again for it, until there is some or there is none."""
        if self.doing is Doing.WAITING:
            self._parking.resume()
        else:
            self._asked.put(True)
        answer = self._answers.get(timeout=_PATIENCE)
        if answer is self._parking:
            self.doing = Doing.WAITING
        elif isinstance(answer, Work):
            self.doing, self.work = Doing.WORKING, answer
        elif answer is None:
            self.doing = Doing.STOPPED
        else:
            raise AssertionError(answer)

    def put_down(self) -> None:
        """The batch was finished, given back or halted."""
        self.doing, self.work = Doing.NOTHING, None

    def close(self) -> None:
        """After the lanes were stopped."""
        if self.doing is Doing.WAITING:
            self.step()
        self._asked.put(False)
        self._thread.join(_PATIENCE)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while self._asked.get():
            try:
                self._answers.put(self._lanes.take(self.number))
            except BaseException as error:
                self._answers.put(error)


class SteppedWithdrawal:
    """The fetcher while a partition leaves: it waits for what runs of it, and the processors go on."""

    def __init__(
        self, lanes: Lanes, clock: Clock, units: Sequence[Unit], gone: Assignment, patience: float
    ) -> None:
        """`patience`: seconds that it waits at most. It has begun when this returns."""
        self.gone = gone
        self.running: list[str] | None = None
        """The tables that still run of it; None while they are waited for."""
        self._clock = clock
        self._answers: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._parking = _Parking(lanes.lock, self._answers, clock)
        lanes._settled = self._parking  # type: ignore[assignment]  # the part that is used
        self._end = clock.now + patience
        withdraw = partial(lanes.withdraw, units, {gone}, patience)
        self._thread = threading.Thread(target=self._run, args=(withdraw,), name="withdrawal", daemon=True)
        self._thread.start()
        self._hear()

    @property
    def asleep(self) -> bool:
        """It waits, was not told to look again, and its patience lasts."""
        return self.running is None and not self._parking.told and self._end > self._clock.now

    def step(self) -> None:
        """Look again whether anything of the partition still runs."""
        self._parking.resume()
        self._hear()

    def _hear(self) -> None:
        answer = self._answers.get(timeout=_PATIENCE)
        if answer is self._parking:
            return
        self._thread.join(_PATIENCE)
        assert isinstance(answer, list), answer
        self.running = answer

    def _run(self, withdraw: Callable[[], list[str]]) -> None:
        try:
            self._answers.put(withdraw())
        except BaseException as error:
            self._answers.put(error)


def nobody_sleeps_while_there_is_work(
    processors: Sequence[SteppedProcessor], units: Sequence[Unit], *, stealing: bool
) -> None:
    """Assert that for every ready unit somebody looks for work, and that somebody watches the next timer."""
    asleep = [p for p in processors if p.asleep]
    awake = [p for p in processors if p.doing in (Doing.NOTHING, Doing.WAITING) and not p.asleep]
    ready = [each for each in units if each.state is UnitState.READY]
    if stealing:
        assert not asleep or len(ready) <= len(awake)
    else:
        assert not {p.number for p in asleep} & {each.lane for each in ready}
    timed = [each.due for each in units if each.state in (UnitState.GATHERING, UnitState.BACKOFF)]
    if timed and asleep and not awake:
        assert min(p.until for p in asleep) <= min(timed), "nobody watches the next timer"
