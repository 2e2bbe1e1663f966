"""Assignments of new partitions and recreated topics, and the records of former topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from handlers.logs import get_logger
from offsets.finished import FinishedMap
from offsets.restore import Start
from offsets.topic_ids import TopicIds
from offsets.types import Checkpoint, TopicPartition
from worker.formats.interface import Format
from worker.lanes.lanes import Lanes
from worker.units.assigned_partition import Assignment, Assignments, with_earlier

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
        """Wait until the records of these partitions' former topics are finished, except those of halted and
        paused tables. `fetching`: this is the fetcher's thread, so no other offers records to the lanes."""
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


@dataclass(eq=False)
class NewAssignments:
    """Makes assignments. Only on the fetcher's thread."""

    assignments: Assignments
    topic_ids: TopicIds
    finished_map: FinishedMap
    format_of: Callable[[str], Format]

    def make(self, partition: TopicPartition, epoch: int, start: Start) -> Assignment:
        made = Assignment(partition, epoch, start, self.format_of(partition.topic), self.finished_map)
        made.topic_id = start.topic_id  # an unknown id never replaces a known one
        return made

    def succeed(self, old: Assignment, topic_id: str) -> Assignment:
        """The topic was recreated while it was read: read its partition from the new topic's start. The
        earlier records keep their assignment."""
        tracker = old.tracker
        known = old.in_kafka or Checkpoint(tracker.next_offset or 0)
        earlier = known._replace(offset=tracker.next_offset or known.offset, topic_id=old.topic_id)
        start = Start("earliest", (), "new topic", "the topic was recreated while it was read", earlier, 0)
        new = self.make(old.partition, self.assignments.next_epoch(), start)
        tracker.end()
        new.topic_id = topic_id
        new.before = old
        self.recreated(new, earlier)
        self.assignments.add([new])
        return new

    def recreated(self, assignment: Assignment, earlier: Checkpoint) -> None:
        """Log that the topic is not the one that was read before."""
        if earlier.topic_id is not None:
            self.topic_ids.former(assignment.partition.topic, earlier.topic_id)
        log.error(
            "topic_made_anew",
            partition=str(assignment.partition),
            earlier_id=earlier.topic_id,
            id=assignment.topic_id,
            read_up_to=earlier.offset,
            goes_on_at="earliest",
            records_lost=None,
            hint="Kafka cannot say what the earlier topic contained from there on; the whole new one is read",
        )
