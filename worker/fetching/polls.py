"""What the consumer returns, how many records it is asked for, and which could not be routed yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import cast

from confluent_kafka import Consumer, Message

from offsets.types import TopicPartition
from worker.configuration import Configuration
from worker.partitions.stage import Stage
from worker.units.assigned_partition import Assignment
from worker.units.delivery import Delivery

_FIRST, _LEAST, MOST_RECORDS = 500, 100, 32_000
"""A full poll doubles the next one: with a backlog, the number of batches determines the cost."""
_ENOUGH = 256
"""Records of each table. Chunks then cost little, and more records would leave the processor's cache."""
POLL_SECONDS = 0.1
_FILL_SECONDS = 0.005
"""Seconds that a poll waits for more records after the first: fuller polls cost less for each record."""


class PollSize:
    """Grows while the lanes accept everything, and shrinks if they do not. The fetcher's own."""

    def __init__(self, max_records: int, max_bytes: int) -> None:
        """`max_records`: of each lane. `max_bytes`: of all lanes together."""
        self._max_records = max_records
        self._max_bytes = max_bytes
        self.records = min(_FIRST, max_records)
        """The most records of the next poll."""

    def adjust(self, delivery: Delivery, count: int, *, full: bool, fits: bool) -> None:
        """Adjust the size after a delivery of `count` records. `full`: the poll returned as many as it
        requested. `fits`: the lanes have accepted them."""
        size = self.records
        if not fits:
            size = max(_LEAST, size // 2)
        elif full and count < _ENOUGH * len(delivery.parts):
            size = min(MOST_RECORDS, size * 2)
        elif full and count > 4 * _ENOUGH * len(delivery.parts):
            size = max(_FIRST, size // 2)
        # Half a lane's room, if the next poll's records are distributed over the lanes as these were.
        busiest = max(delivery.records.values()) / count
        average = delivery.bytes / count
        most = min(self._max_records / 2 / busiest, self._max_bytes / 4 / average)
        self.records = max(1, min(size, int(most)))


class Polls(Stage):
    """The fetcher's own. A rebalance may happen inside each call of the consumer."""

    def __init__(self, consumer: Consumer, max_records: int, max_bytes: int) -> None:
        self._consumer = consumer
        self._bounds = max_records, max_bytes
        self.size = PollSize(max_records, max_bytes)
        self.waiting: deque[list[Message]] = deque()
        """To be routed before later records."""
        self._revoked: set[TopicPartition] = set()  # partitions revoked during the present poll

    def next(self) -> list[Message]:
        """Wait for a first record, then a moment for more."""
        first = self._consumer.poll(POLL_SECONDS)
        if first is None:
            return []
        if self.size.records == 1:
            return [first]
        self._revoked.clear()
        more = self._consumer.consume(self.size.records - 1, _FILL_SECONDS)
        return more if self._revoked and _place(first) in self._revoked else [first, *more]

    def stay(self, seconds: float) -> None:
        """Stay in the group: paused partitions return only records that were already on their way."""
        before, self._revoked = self._revoked, set()
        late = self._consumer.consume(MOST_RECORDS, seconds)
        if late := [m for m in late if _place(m) not in self._revoked]:
            self.waiting.append(late)
        self._revoked |= before

    def adopt(self, now: Configuration) -> None:
        bounds = now.lanes.max_records, now.lanes.max_bytes
        if bounds != self._bounds:
            self._bounds, self.size = bounds, PollSize(*bounds)

    def revoked(self, gone: Collection[Assignment]) -> None:
        """Remove their records: a later assignment of the partition must not count them as fetched."""
        revoked = {assignment.partition for assignment in gone}
        self._revoked |= revoked
        for poll in self.waiting:
            poll[:] = [m for m in poll if _place(m) not in revoked]

    def holds(self, assignment: Assignment) -> bool:
        return any(_place(message) == assignment.partition for poll in self.waiting for message in poll)

    @property
    def some_revoked(self) -> bool:
        """Whether partitions were revoked during the last poll."""
        return bool(self._revoked)


def _place(message: Message) -> TopicPartition:
    return TopicPartition(cast(str, message.topic()), cast(int, message.partition()))
