"""Which partitions the consumer is to fetch nothing from."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

import confluent_kafka
from confluent_kafka import Consumer

from handlers.logs import get_logger
from worker.formats.choice import NO_FORMAT
from worker.partitions.stage import Stage
from worker.units.assigned_partition import Assignment, Assignments

log = get_logger("fetcher")

PausedBy = Literal["lanes", "max_ahead", "ddl_topics", "format", "schema_registry", "first_commit"]
"""The lanes are full; too much is fetched behind an unfinished record; others have to tell their DDL first;
there is no format for it; a schema is to be known first; so is that Kafka has taken its first commit."""

Single = Literal["ddl_topics", "held", "max_ahead"]
"""It is ahead of the others; what comes of it may not be handled yet (see HeldRecords); it is too far ahead
of what is unfinished (see MaxAhead)."""


class Pauses(Stage):
    """All partitions while the lanes are full, single ones while they are ahead of others or of their own
    first unfinished record, for good those of a topic without a format. The fetcher's own.

    librdkafka keeps a flag of each partition, which outlives the partition's assignment: one that left while
    it was paused comes back paused, one that comes for the first time is not. So each that comes is told.
    """

    def __init__(self, consumer: Consumer, assignments: Assignments) -> None:
        self._consumer = consumer
        self._assignments = assignments
        self._single: dict[Single, frozenset[Assignment]] = {}
        self.everything = False
        """Whether all partitions are paused."""
        self.draining = False
        """Whether nothing is fetched any more."""

    def drain(self) -> None:
        """Have every partition that is assigned from now on paused. Any thread."""
        self.draining = True

    def is_paused(self, assignment: Assignment) -> bool:
        """Whether nothing is to be fetched from this partition. Any thread."""
        return self.why(assignment) is not None

    def why(self, assignment: Assignment) -> PausedBy | None:
        """What keeps it from being read; None: nothing. Any thread."""
        if assignment.format is NO_FORMAT:
            return "format"
        if assignment in self.of("max_ahead"):
            return "max_ahead"
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
        """Fetch again from all but single ones."""
        if self.everything:
            self.everything = False
            self._tell(self._assignments.current())

    def assigned(self, added: Collection[Assignment]) -> None:
        """These were assigned, for the first time or again: what librdkafka knows of them does not count."""
        if self.draining:
            self.pause()
        self._tell(added)

    def tell_again(self) -> None:
        """The eager protocol has assigned all partitions anew."""
        self._tell(self._assignments.current())

    def single(self, why: Single, wanted: Iterable[Assignment]) -> None:
        """Fetch nothing from exactly these, for this reason."""
        before, self._single[why] = self.of(why), frozenset(wanted)
        changed = before ^ self._single[why]
        if changed and not self.everything:
            self._tell(changed & set(self._assignments.current()))

    def of(self, why: Single) -> frozenset[Assignment]:
        """Those that are paused for this reason, among others perhaps."""
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
            self._consumer.resume(running)  # does nothing to one that is not paused
        log.debug("pauses_told", paused=len(paused), running=len(running))
