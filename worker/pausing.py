"""Which partitions the consumer is to fetch nothing from."""

from __future__ import annotations

from collections.abc import Iterable

import confluent_kafka
from confluent_kafka import Consumer

from worker.assignment import Assignment, Assignments
from worker.logs import get_logger

__all__ = ["Pauses"]

log = get_logger("fetcher")


class Pauses:
    """All partitions while the lanes are full, single ones while they are ahead. The fetcher's own."""

    def __init__(self, consumer: Consumer, assignments: Assignments) -> None:
        self._consumer = consumer
        self._assignments = assignments
        self._ahead: set[Assignment] = set()
        self.everything = False
        """Whether all partitions are paused."""

    def pause(self) -> None:
        """Fetch nothing from any partition."""
        if not self.everything:
            self.everything = True
            self._tell(self._assignments.current(), paused=True)

    def resume(self) -> None:
        """Fetch again from all but those that are ahead."""
        if self.everything:
            self.everything = False
            self._tell((a for a in self._assignments.current() if a not in self._ahead), paused=False)

    def came(self, added: Iterable[Assignment]) -> None:
        """librdkafka does not pause what is assigned while everything is paused."""
        if self.everything:
            self._tell(added, paused=True)

    def ahead(self, ahead: Iterable[Assignment]) -> None:
        """Fetch nothing from exactly these, for they are ahead of the others."""
        now = set(ahead)
        before, self._ahead = self._ahead, now
        if self.everything or now == before:
            return
        current = set(self._assignments.current())
        self._tell((now - before) & current, paused=True)
        self._tell((before - now) & current, paused=False)

    def _tell(self, partitions: Iterable[Assignment], *, paused: bool) -> None:
        places = [confluent_kafka.TopicPartition(*each.partition) for each in partitions]
        if places:
            (self._consumer.pause if paused else self._consumer.resume)(places)
            log.debug("paused" if paused else "resumed", partitions=len(places))
