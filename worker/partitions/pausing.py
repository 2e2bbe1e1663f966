"""The partitions from which the consumer fetches nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

import confluent_kafka
from confluent_kafka import Consumer

from handlers.logs import get_logger
from worker.formats.registry import NO_FORMAT
from worker.partitions.stage import Stage
from worker.units.assigned_partition import Assignment, Assignments

log = get_logger("fetcher")

PausedBy = Literal["lanes", "max_ahead", "parked", "ddl_topics", "format", "schema_registry", "first_commit"]
"""The lanes are full. Too many records are fetched behind an unfinished one. Parked records take all the disk
that they may (see Parking). Other partitions' DDL must come first. The topic has no format. A schema is
unknown. Kafka has not accepted the first commit."""

Single = Literal["ddl_topics", "held", "max_ahead", "parked"]
"""It is ahead of the others. Its records may not be handled yet (see HeldRecords). It is too far ahead of its
first unfinished record (see MaxAhead)."""


class Pauses(Stage):
    """Pauses partitions. All of them while the lanes are full, single ones while they are ahead of others or
    of their first unfinished record. Those of a topic without a format, permanently. The fetcher's own.

    librdkafka keeps a flag for each partition. The flag outlives the assignment: a partition that was revoked
    while paused is paused when it is assigned again. So the flag of each assigned partition is set."""

    def __init__(self, consumer: Consumer, assignments: Assignments) -> None:
        self._consumer = consumer
        self._assignments = assignments
        self._single: dict[Single, frozenset[Assignment]] = {}
        self.everything = False
        """Whether all partitions are paused."""
        self.draining = False
        """Whether nothing is fetched any more."""

    def drain(self) -> None:
        """Pause every partition that is assigned from now on. Any thread."""
        self.draining = True

    def is_paused(self, assignment: Assignment) -> bool:
        """Whether nothing may be fetched from this partition. Any thread."""
        return self.why(assignment) is not None

    def why(self, assignment: Assignment) -> PausedBy | None:
        """Return why the partition is not read, or None. Any thread."""
        if assignment.format is NO_FORMAT:
            return "format"
        if assignment in self.of("max_ahead"):
            return "max_ahead"
        if assignment in self.of("parked"):
            return "parked"
        if assignment in self.of("held"):
            return "schema_registry" if assignment.may_begin else "first_commit"
        if self.everything:
            return "lanes"
        return "ddl_topics" if assignment in self.of("ddl_topics") else None

    def pause(self) -> None:
        """Fetch nothing from any partition."""
        if not self.everything:
            self.everything = True
            self._tell(self._assignments.current())

    def resume(self) -> None:
        """Fetch again from all partitions, except single paused ones."""
        if self.everything:
            self.everything = False
            self._tell(self._assignments.current())

    def assigned(self, added: Collection[Assignment]) -> None:
        """Set the flags of assigned partitions, because librdkafka may have old ones."""
        if self.draining:
            self.pause()
        self._tell(added)

    def tell_again(self) -> None:
        """Set all flags again: the eager protocol has assigned all partitions again."""
        self._tell(self._assignments.current())

    def single(self, why: Single, wanted: Iterable[Assignment]) -> None:
        """Pause exactly these partitions for this reason."""
        before, self._single[why] = self.of(why), frozenset(wanted)
        changed = before ^ self._single[why]
        if changed and not self.everything:
            self._tell(changed & set(self._assignments.current()))

    def of(self, why: Single) -> frozenset[Assignment]:
        """Return the partitions that are paused for this reason, among others perhaps."""
        return self._single.get(why, frozenset())

    def _tell(self, partitions: Iterable[Assignment]) -> None:
        paused: list[confluent_kafka.TopicPartition] = []
        running: list[confluent_kafka.TopicPartition] = []
        for each in partitions:
            places = paused if self.is_paused(each) else running
            places.append(confluent_kafka.TopicPartition(*each.partition))
        if paused:
            self._consumer.pause(paused)
        if running:
            self._consumer.resume(running)  # has no effect on one that is not paused
        log.debug("pauses_told", paused=len(paused), running=len(running))
