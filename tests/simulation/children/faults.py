"""What goes wrong with the child processes of a worker, and how it is mended."""

from __future__ import annotations

import signal
from collections.abc import Callable
from random import Random

from ..machine.kernel import Child
from ..machine.scheduler import Task, current
from ..plan import Event, Plan
from ..world import Running, World

__all__ = ["ChildFaults"]

_LATE_SECONDS = 20.0
_AGAIN_SECONDS = 1.0


class ChildFaults:
    """Methods with the names of `CHILD_FAULTS`, and `at`, which handlers call where their process may end."""

    def __init__(
        self,
        world: World,
        plan: Plan,
        start: Callable[[int], Running],
        running: Callable[[int], Running | None],
    ) -> None:
        self._world, self._plan, self._start, self._running = world, plan, start, running
        self._random = Random(f"children's faults {plan.seed}")
        self._not_started: set[Running] = set()
        world.at_place = self.at
        world.ended = self._ended
        world.kernel.ended = self._child_ended
        world.kernel.refused = self._fails
        if plan.children is not None:
            world.kernel.start_seconds = plan.children.start_seconds

    def at(self, place: str) -> None:
        """A child process is at this place of its handler. Raises Killed, and what an `open` raises."""
        children, scheduler = self._plan.children, current()
        if children is None or self._world.peace:
            return
        random = scheduler.random.random
        if place == "open":
            if random() < children.late:
                scheduler.park(random() * _LATE_SECONDS)
            kind = random()
            if kind < children.opening / 2:
                self._end("open")
            elif kind < children.opening:
                self._fails(_parent())
                raise ValueError("not opened, as the plan says")
        elif random() < (children.opening / 2 if place == "close" else children.dying / 3):
            self._end(place)

    def heal(self) -> None:
        self._world.kernel.full = False
        for child in self._world.kernel.children:
            if child.frozen and child.code is None:
                self._thaw(child)

    # -- methods with the names of events

    def child_killed(self, event: Event) -> None:
        child = self._any(event)
        if child is not None:
            self._world.note(child.name, "is killed")
            self._world.kernel.tell(child, signal.SIGKILL)

    def child_frozen(self, event: Event) -> None:
        """It answers late."""
        child = self._any(event)
        if child is None or child.frozen:
            return
        self._world.note(child.name, "is frozen")
        self._world.scheduler.freeze(child)
        current().park(event.seconds)
        if child.frozen and child.code is None:
            self._thaw(child)

    def child_unheard(self, event: Event) -> None:
        """The worker loses a connection on which it waits, and the child goes on."""
        worker = self._running(event.who)
        child = self._any(event)
        if worker is None or child is None:
            return
        for end in self._world.kernel.ends(worker):
            if end.waiting and end.peer in self._world.kernel.ends(child):
                self._world.note(child.name, "is not heard")
                self._world.kernel.lose(end)
                return

    def no_starts(self, event: Event) -> None:
        self._world.kernel.full = True
        current().park(event.seconds)
        self._world.kernel.full = False

    def changed(self, event: Event) -> None:
        """A reload with other handlers. Often a child is killed meanwhile."""
        worker = self._running(event.who)
        if worker is None or worker.worker is None:
            return
        name = self._random.choice(("log", "other", "another"))
        configuration = self._plan.configuration(handler=name)
        worker.next_configuration = self._world.placed(worker.folder, configuration)
        worker.worker._reloader.want()
        children = self._plan.children
        assert children is not None
        if children.dying and self._random.random() < 0.5:
            current().park(self._random.random() * 0.3)
            self.child_killed(event)

    # -- what follows

    def _any(self, event: Event) -> Child | None:
        worker = self._running(event.who)
        children = [] if worker is None else self._world.kernel.of(worker)
        return self._random.choice(children) if children else None

    def _thaw(self, child: Child) -> None:
        self._world.note(child.name, "is thawed")
        self._world.scheduler.thaw(child)

    def _end(self, place: str) -> None:
        self._world.note(_task().process.name, f"ends at {place}")
        self._world.kernel.crash()

    def _child_ended(self, child: Child) -> None:
        self._world.note(child.name, f"has ended with {child.code}")
        if not child.parent.dead:
            self._fails(child.parent)

    def _fails(self, worker: Running) -> None:
        """If it has not started yet, it ends with an error, and is started again."""
        if worker.worker is not None and worker.worker.started() is not None:
            worker.excused = True
            self._not_started.add(worker)

    def _ended(self, worker: Running) -> None:
        if worker not in self._not_started or worker.wanted:
            return
        number = int(worker.name[1:].partition(".")[0])
        scheduler = self._world.scheduler
        scheduler.at(scheduler.now + _AGAIN_SECONDS, lambda: self._world.over or self._start(number))


def _task() -> Task:
    task = current().task
    assert task is not None
    return task


def _parent() -> Running:
    process = _task().process
    assert isinstance(process, Child)
    parent: Running = process.parent
    return parent
