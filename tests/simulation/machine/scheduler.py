"""Tasks that take turns as a seed decides, and a clock that moves only while all of them wait."""

from __future__ import annotations

import heapq
import itertools
import traceback
import zlib
from collections.abc import Callable
from random import Random

from greenlet import getcurrent, greenlet

__all__ = ["Killed", "Process", "Scheduler", "Task", "current", "use"]

_STEP_SECONDS = 2e-6
"""What each turn takes, so that a loop that looks at the clock comes to its end."""
_MOST_TURNS = 2_000_000


class Killed(BaseException):
    """The simulated process is no more; nothing of it runs on."""


class Process:
    """What is killed, frozen and thawed together: the tasks of one simulated process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tasks: dict[int, Task] = {}
        self.dead = False
        self.frozen = False
        self.held: list[Callable[[], None]] = []
        """What came due while it was frozen."""


class Task:
    """One thread of a simulated process."""

    __slots__ = (
        "ended",
        "greenlet",
        "name",
        "number",
        "process",
        "thread",
        "token",
        "waiters",
        "waits",
        "woken",
    )

    def __init__(self, name: str, number: int, process: Process) -> None:
        self.name = name
        self.number = number
        self.process = process
        self.greenlet: greenlet | None = None
        self.thread: object = None
        self.token = 0  # changes with each wait: what wakes an earlier one is too late
        self.waits = False
        self.woken = False
        self.ended = False
        self.waiters: list[Task] = []


class Scheduler:
    """One simulated machine. Only one task runs at a time; it gives way in `preempt` and `park`."""

    def __init__(self, seed: int, *, switch: float = 0.15, delay: float = 0.004) -> None:
        """`switch`: how often another task has its turn at a place where one may; `delay`: how often the task
        is kept from going on for some milliseconds there, as on a busy machine."""
        self.random = Random(seed)
        self.now = 1000.0
        self.task: Task | None = None
        self.turns = 0
        self.hash = 0
        self.faults: list[str] = []
        """Errors that came out of a task."""
        self.note: Callable[[str, str], None] = lambda who, what: None
        self._switch = switch
        self._delay = delay
        self._hub = getcurrent()
        self._ready: list[Task] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count(1)
        self._orders = itertools.count()

    # -- what tasks ask for

    def spawn(self, name: str, process: Process, do: Callable[[], object]) -> Task:
        """A task that begins at its first turn."""
        task = Task(name, next(self._numbers), process)
        task.greenlet = greenlet(lambda: self._run(task, do), parent=self._hub)
        process.tasks[task.number] = task
        self._ready.append(task)
        return task

    def preempt(self) -> None:
        """A place where another task may have its turn. Raises Killed in what is left of a dead process."""
        task = self.task
        if task is None:
            return
        if task.process.dead:
            raise Killed
        chance = self.random.random()
        if chance < self._delay:
            self.park(self.random.random() ** 3 * 0.05)
        elif chance < self._switch:
            self._ready.append(task)
            self._hub.switch()
            if task.process.dead:
                raise Killed

    def park(self, timeout: float | None = None) -> bool:
        """Wait to be woken. False: `timeout` seconds went by before that."""
        task = self.task
        if task is None:
            raise RuntimeError("only a task can wait")
        if task.process.dead:
            raise Killed
        task.token += 1
        task.waits, task.woken = True, False
        if timeout is not None:
            token = task.token
            self.at(self.now + max(timeout, 0.0), lambda: self._timeout(task, token))
        self._hub.switch()
        if task.process.dead:
            raise Killed
        return task.woken

    def wake(self, task: Task) -> None:
        """End the task's wait, if it waits."""
        if task.waits:
            task.waits, task.woken = False, True
            self._ready.append(task)

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Have it done at that time, by no task."""
        heapq.heappush(self._timers, (when, next(self._orders), do))

    def later(self, process: Process, seconds: float, do: Callable[[], None]) -> None:
        """As `at`, for a process: not once it is dead, and not before it is thawed."""
        self.at(self.now + seconds, lambda: self._of(process, do))

    # -- processes

    def kill(self, process: Process) -> None:
        """Nothing of it runs on, not even what stands in `finally`: what that asks for raises Killed."""
        if process.dead:
            return
        process.dead = True
        for task in list(process.tasks.values()):
            if task is self.task:
                continue
            self._throw(task)

    def freeze(self, process: Process) -> None:
        process.frozen = True

    def thaw(self, process: Process) -> None:
        process.frozen = False
        held, process.held = process.held, []
        for do in held:
            do()

    # -- the machine

    def run(self, until: Callable[[], bool], deadline: float) -> bool:
        """Until that is so (True), or the clock is at `deadline`, or nothing can happen any more (False)."""
        while not until():
            if self.now >= deadline or not self.turn():
                return until()
        return True

    def turn(self) -> bool:
        """Let one task have its turn. False: nothing can happen any more."""
        timers, ready = self._timers, self._ready
        if not ready:
            if not timers:
                return False
            self.now = max(self.now, timers[0][0])
        while timers and timers[0][0] <= self.now:
            heapq.heappop(timers)[2]()
        if not ready:
            return True
        self.now += _STEP_SECONDS
        place = int(self.random.random() * len(ready))
        task = ready[place]
        ready[place] = ready[-1]
        ready.pop()
        self._go_on(task)
        return True

    def _go_on(self, task: Task) -> None:
        if task.process.dead or task.ended:
            return
        if task.process.frozen:
            task.process.held.append(lambda: self._ready.append(task))
            return
        self.turns += 1
        if self.turns > _MOST_TURNS:
            raise RuntimeError("the simulation does not come to its end")
        self.hash = (self.hash * 1_000_003 + task.number) & 0xFFFFFFFFFFFF
        self.task = task
        try:
            task.greenlet.switch()
        finally:
            self.task = None

    def _throw(self, task: Task) -> None:
        before, self.task = self.task, task
        try:
            while not task.ended and task.greenlet is not None:
                if not task.greenlet:  # it never began
                    task.ended = True
                    break
                task.greenlet.parent = getcurrent()
                task.greenlet.throw(Killed)
        finally:
            self.task = before

    def _run(self, task: Task, do: Callable[[], object]) -> None:
        try:
            do()
        except Killed:
            pass
        except BaseException:
            if not task.process.dead:
                self.faults.append(f"{task.name}: {traceback.format_exc()}")
        task.ended = True
        task.process.tasks.pop(task.number, None)
        for waiter in task.waiters:
            self.wake(waiter)

    def _timeout(self, task: Task, token: int) -> None:
        if task.waits and task.token == token:
            task.waits = False
            self._ready.append(task)

    def _of(self, process: Process, do: Callable[[], None]) -> None:
        if process.dead:
            return
        if process.frozen:
            process.held.append(do)
        else:
            do()

    def digest(self, text: str) -> None:
        """Make it part of what tells this run from another."""
        self.hash = zlib.crc32(text.encode(), self.hash & 0xFFFFFFFF) ^ (self.hash << 8 & 0xFFFFFFFFFFFF)


_used: list[Scheduler] = []


def use(scheduler: Scheduler | None) -> None:
    """Which one the simulated `threading` and `time` belong to."""
    _used[:] = [] if scheduler is None else [scheduler]


def current() -> Scheduler:
    return _used[0]
