"""Consumers of librdkafka's mock brokers, to which partitions come and from which they go as a test says."""

from __future__ import annotations

import time
from collections import Counter
from typing import cast

import confluent_kafka
from confluent_kafka import Consumer

from offsets.restore import Start
from offsets.types import TopicPartition
from worker.formats.registry import get
from worker.partitions.pausing import Pauses
from worker.units.assigned_partition import Assignment, Assignments

__all__ = ["RECORDS", "Member"]

RECORDS = 20
"""In each of the topic's partitions, 0 to 3."""


class Member:
    """A consumer to which partitions come and from which they go as the test says."""

    def __init__(self, servers: str, strategy: str) -> None:
        self.eager = strategy == "range"
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": strategy,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.queue.backoff.ms": 5,
                "fetch.wait.max.ms": 20,
                "partition.assignment.strategy": strategy,
                "log_level": 2,
            }
        )
        self.assignments = Assignments()
        self.pauses = Pauses(self.consumer, self.assignments)

    def come(self, *partitions: int, offset: int = 0) -> list[Assignment]:
        """As Rebalancer.on_assign does it."""
        places = [confluent_kafka.TopicPartition("t", each, offset) for each in partitions]
        if self.eager:
            self.consumer.assign(places)
        else:
            self.consumer.incremental_assign(places)
        added = [
            Assignment(
                TopicPartition("t", each),
                self.assignments.next_epoch(),
                Start(offset, (), "kafka", ""),
                get("canal"),
            )
            for each in partitions
        ]
        self.assignments.add(added)
        self.pauses.assigned(added)
        return added

    def leave(self, *partitions: int) -> None:
        """As after Rebalancer.on_revoke and on_lost."""
        if self.eager:
            self.consumer.unassign()
        else:
            self.consumer.incremental_unassign([confluent_kafka.TopicPartition("t", p) for p in partitions])
        self.assignments.remove(TopicPartition("t", each) for each in partitions)

    def read(self, expected: dict[int, int]) -> dict[int, int]:
        """{partition: how many records came}: until it is as expected, or for 10 s."""
        found: Counter[int] = Counter()
        end = time.monotonic() + 10
        while found != expected and time.monotonic() < end:
            found.update(cast(int, m.partition()) for m in self.consumer.consume(500, 0.05) if not m.error())
        return dict(found)

    def reads_nothing(self) -> bool:
        """For half a second, 25 times as long as an answer of the broker takes."""
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            if any(not m.error() for m in self.consumer.consume(500, 0.05)):
                return False
        return True
