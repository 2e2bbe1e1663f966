"""Records that were fetched from topics that have since been recreated. Nobody can fetch them again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from handlers.logs import get_logger
from worker.lanes.lanes import Lanes
from worker.units.assigned_partition import Assignment, with_earlier

log = get_logger("former")

_LOOK_SECONDS = 0.01


class FormerRecords:
    """Records of former topics. They are handled before a revocation and before a stop, or else logged."""

    def __init__(self, lanes: Lanes, offer: Callable[[], object], clock: Callable[[], float]) -> None:
        """`offer`: gives the lanes the records that they had no room for. On the fetcher's thread."""
        self._lanes = lanes
        self._offer = offer
        self._clock = clock
        self._told: set[Assignment] = set()
        self.lost = 0
        """Records that were not handled, and never will be."""

    def work_off(self, assignments: Iterable[Assignment], seconds: float, *, fetching: bool = False) -> None:
        """Wait until the records of these partitions' former topics are finished, except those of halted
        tables. `fetching`: this is the fetcher's thread, so no other thread offers records to the lanes."""
        former, end = self._before(assignments), self._clock() + seconds
        while self._clock() < end and any(not each.forgotten and each.tracker.unfinished for each in former):
            if fetching:
                self._offer()
            if self._lanes.worked_off() or self._lanes.seen.dead_end():
                return
            time.sleep(_LOOK_SECONDS)

    def tell(self, assignments: Iterable[Assignment]) -> None:
        """Log the former topics' lost records: nothing more of these partitions is handled."""
        for assignment in self._before(assignments):
            if count := assignment.tracker.unfinished:
                self._told.add(assignment)
                self.lose(assignment, count, "not handled before the partition left or the worker stopped")

    def lose(self, assignment: Assignment, count: int, why: str) -> None:
        """Log that `count` of its records are lost, unless there are none."""
        if not count:
            return
        self.lost += count
        log.error(
            "former_records_lost",
            partition=str(assignment.partition),
            topic_id=assignment.topic_id,
            records_lost=count,
            hint=f"they were fetched before the topic was recreated, and {why}: Kafka no longer has them",
        )

    def _before(self, assignments: Iterable[Assignment]) -> set[Assignment]:
        found = set(assignments)
        return with_earlier(found) - found - self._told
