"""Who has a partition, and whether a batch was begun when another had it already."""

from __future__ import annotations

from typing import Any

from worker.lanes.lanes import Lanes
from worker.units.assigned_partition import Assignment

from .ledger import Part
from .machine.scheduler import Process, Scheduler, Task

__all__ = ["Ownership"]


class Ownership:
    """`another's`: a batch that a worker took before its partition was another's may run on, since nobody can
    call it back. One that it takes later must not be: its session is over, and it has to know."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._given: dict[Part, tuple[Process, Assignment, float]] = {}
        self._taken: dict[Task, float] = {}  # when the batch was taken that this thread has now

    def given(self, process: Process, part: Part, assignment: Assignment) -> None:
        """A worker was told that it has the partition."""
        self._given[part] = process, assignment, self._scheduler.now

    def holder(self, part: Part) -> Assignment | None:
        """The assignment by which it was given last."""
        given = self._given.get(part)
        return None if given is None else given[1]

    def watch(self, lanes: Lanes) -> None:
        take = lanes.take

        def taken(number: int, finished: Any = None) -> Any:
            work = take(number, finished)
            task = self._scheduler.task
            assert task is not None
            self._taken[task] = self._scheduler.now
            return work

        lanes.take = taken  # type: ignore[method-assign]

    def begun_after_another(self, part: Part, process: Process, looked: float | None) -> bool:
        """Whether the batch of this thread was taken after the partition was given to another process. In a
        child process, it counts when that has looked whether it may begin."""
        task, given = self._scheduler.task, self._given.get(part)
        assert task is not None
        if given is None:
            return False
        holder, _, when = given
        return holder is not process and (self._taken[task] if looked is None else looked) > when
