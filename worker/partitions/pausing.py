"""Which partitions the consumer is to fetch nothing from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import confluent_kafka
from confluent_kafka import Consumer

from handlers.logs import get_logger
from worker.formats.choice import NO_FORMAT
from worker.units.assigned_partition import Assignment, Assignments

__all__ = ["PausedBy", "Pauses"]

log = get_logger("fetcher")

PausedBy = Literal["lanes", "max_ahead", "ddl_topics", "format", "schema_registry", "first_commit"]
"""The lanes are full; too much is fetched behind an unfinished record; others have to tell their DDL first;
there is no format for it; a schema is to be known first; so is that Kafka has taken its first commit."""


class Pauses:
    """All partitions while the lanes are full, single ones while they are ahead of others or of their own
    first unfinished record, for good those of a topic without a format. The fetcher's own.

    librdkafka keeps a flag of each partition, which outlives the partition's assignment: one that left while
    it was paused comes back paused, one that comes for the first time is not. So each that comes is told.
    """

    def __init__(self, consumer: Consumer, assignments: Assignments) -> None:
        self._consumer = consumer
        self._assignments = assignments
        self._ahead: set[Assignment] = set()
        self._beyond: set[Assignment] = set()
        self._held: set[Assignment] = set()
        self.everything = False
        """Whether all partitions are paused."""

    def holds(self, assignment: Assignment) -> bool:
        """Whether nothing is to be fetched from this partition. Any thread."""
        return self.why(assignment) is not None

    def why(self, assignment: Assignment) -> PausedBy | None:
        """What keeps it from being read; None: nothing. Any thread."""
        if assignment.format is NO_FORMAT:
            return "format"
        if assignment in self._beyond:
            return "max_ahead"
        if assignment in self._held:
            return "schema_registry" if assignment.may_begin else "first_commit"
        if self.everything:
            return "lanes"
        return "ddl_topics" if assignment in self._ahead else None

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

    def came(self, added: Iterable[Assignment]) -> None:
        """These were assigned, for the first time or again: what librdkafka knows of them does not count."""
        self._tell(added)

    def ahead(self, ahead: Iterable[Assignment]) -> None:
        """Fetch nothing from exactly these, for they are ahead of the others."""
        before, self._ahead = self._ahead, set(ahead)
        self._tell_changed(before ^ self._ahead)

    def beyond(self, beyond: Iterable[Assignment]) -> None:
        """Fetch nothing from exactly these: they are too far ahead of what is unfinished (see MaxAhead)."""
        before, self._beyond = self._beyond, set(beyond)
        self._tell_changed(before ^ self._beyond)

    def held(self, held: Iterable[Assignment]) -> None:
        """Fetch nothing from exactly these: what comes of them may not be handled yet (see HeldRecords)."""
        before, self._held = self._held, set(held)
        self._tell_changed(before ^ self._held)

    def _tell_changed(self, changed: set[Assignment]) -> None:
        if changed and not self.everything:
            self._tell(changed & set(self._assignments.current()))

    def _tell(self, partitions: Iterable[Assignment]) -> None:
        paused: list[confluent_kafka.TopicPartition] = []
        running: list[confluent_kafka.TopicPartition] = []
        for each in partitions:
            places = paused if self.holds(each) else running
            places.append(confluent_kafka.TopicPartition(*each.partition))
        if paused:
            self._consumer.pause(paused)
        if running:
            self._consumer.resume(running)  # does nothing to one that is not paused
        log.debug("pauses_told", paused=len(paused), running=len(running))
