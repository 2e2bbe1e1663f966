"""Assignments for newly assigned partitions, and for partitions whose topic was recreated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from handlers.logs import get_logger
from offsets.finished import FinishedMap
from offsets.restore import Start
from offsets.topic_ids import TopicIds
from offsets.types import Checkpoint, TopicPartition
from worker.formats.interface import Format
from worker.units.assigned_partition import Assignment, Assignments

log = get_logger("former")


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
