"""What waits for its schema counts as read: nothing goes past it, and it is not fetched again."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

from building import Clock
from confluent_kafka import Message

from offsets.restore import Start
from offsets.types import Checkpoint, TopicPartition
from worker.fetching.held_records import HeldRecords
from worker.fetching.receiving import Arrivals, Receiver
from worker.fetching.source_order import SourceOrder
from worker.formats.debezium.format import Debezium
from worker.formats.interface import LogPosition, Record
from worker.partitions.pausing import Pauses
from worker.partitions.refetching import Refetching
from worker.partitions.stage import Stage
from worker.units.assigned_partition import Assignment, Assignments


class Reading(Debezium):
    """Values are places in the log; those below `unknown` have schemas that are not known."""

    unknown = 10

    def ready(self, records: Sequence[Record]) -> int:
        places = [int(record.value() or b"") for record in records]
        return next((n for n, place in enumerate(places) if place < self.unknown), len(places))

    def log_position(self, record: Record) -> LogPosition:
        return LogPosition("s", (int(record.value() or b""),), record.topic() == "ddl")

    def learn(self, record: Record) -> None:
        pass


class Site:
    """A receiver over a topic with DDL and one with rows, whose lanes are not there."""

    def __init__(self, *, max_bytes: int | None = None) -> None:
        self.format = Reading()
        self.routed: list[tuple[str, int]] = []
        start = Start(0, (), "initial", "for the test")
        self.rows, self.ddl = (
            Assignment(TopicPartition(topic, 0), 1, start, cast(Any, self.format))
            for topic in ("rows", "ddl")
        )
        for each in (self.rows, self.ddl):
            each.in_kafka = Checkpoint(0)
        assignments = Assignments()
        assignments.add([self.rows, self.ddl])
        pauses = Pauses(Mock(), assignments)
        self.lost: list[tuple[Assignment, int]] = []
        gate = HeldRecords(
            pauses,
            assignments,
            commit=Mock(),
            lose=lambda of, count, _why: self.lost.append((of, count)) if count else None,
            clock=Clock(),
        )
        self.stages: list[Stage] = [gate, Arrivals(Mock())]
        if max_bytes is not None:
            order = SourceOrder(
                lambda topic: topic == "ddl",
                high=lambda _: None,
                pauses=pauses,
                are_held=gate.__bool__,
                is_damaged=lambda _: False,
                max_bytes=max_bytes,
                clock=Clock(),
            )
            order.assigned([self.rows, self.ddl])
            self.stages.append(order)
        polls = SimpleNamespace(size=SimpleNamespace(records=500), some_revoked=False)
        self.receiver = Receiver(
            self.stages,
            assignments,
            cast(Any, SimpleNamespace(route=self.route, let_go=Mock())),
            cast(Any, SimpleNamespace(backlog=(), lanes=Mock(), polls=polls)),
        )
        self.refetching = Refetching(
            Mock(),
            assignments,
            pauses,
            Mock(),
            cast(Any, SimpleNamespace(succeed=self.succeed)),
            stages=self.stages,
            flush_all=self.receiver.flush,
            clock=Clock(),
        )

    def succeed(self, old: Assignment, topic_id: str) -> Assignment:
        assert (old, topic_id) == (self.rows, "other")
        self.routed.append(("anew", 0))
        return Assignment(self.rows.partition, 2, self.rows.start, cast(Any, self.format))

    def route(self, assignment: Assignment, records: list[Record], _delivery: object) -> None:
        self.routed += [(assignment.partition.topic, int(each.value() or b"")) for each in records]

    def receive(self, topic: str, *places: int) -> None:
        self.receiver.receive(
            [
                Message(topic=topic, partition=0, offset=place, value=str(place).encode(), timestamp=(1, 1))
                for place in places
            ]
        )


def test_nothing_is_given_up_for_lack_of_a_partition_that_waits_for_a_schema() -> None:
    """Its rows belong before the statements, and it tells no more because it is paused."""
    site = Site(max_bytes=4_000)
    site.receive("rows", 5, 50)
    site.receive("ddl", *range(10, 30))
    assert site.routed == []
    site.format.unknown = 0
    site.receive("ddl")
    assert site.routed[:2] == [("rows", 5), ("ddl", 10)]


def test_a_partition_that_brought_what_waits_is_not_asked_for_it_again() -> None:
    """By the eager protocol all are assigned anew when one is: each from where it was asked for, until
    something came."""
    site = Site()
    site.rows.asked = 5
    site.receive("rows", 5, 6)
    assert site.routed == []
    assert site.rows.asked is None


def began_anew(site: Site) -> list[tuple[Assignment, int]]:
    """Have the topic of the rows made anew. Returns what was told as lost."""
    site.refetching.begin_anew(site.rows, "other")
    return site.lost


def test_records_that_wait_for_a_first_commit_are_handled_though_their_topic_is_gone() -> None:
    """Nobody commits it any more, and nobody can fetch them again."""
    site = Site()
    site.rows.in_kafka = None
    site.receive("rows", 50, 51)
    assert site.routed == []
    assert began_anew(site) == []
    assert site.routed == [("rows", 50), ("rows", 51), ("anew", 0)]


def test_records_that_wait_for_a_schema_when_their_topic_is_gone_are_counted() -> None:
    site = Site()
    site.receive("rows", 50, 5, 51)
    assert began_anew(site) == [(site.rows, 2)]
    assert site.routed == [("rows", 50), ("anew", 0)]
    site.format.unknown = 0
    site.receive("rows")
    assert len(site.routed) == 2


def test_records_that_wait_for_a_first_commit_keep_the_source_order_when_their_topic_is_gone() -> None:
    site = Site(max_bytes=4_000)
    site.rows.in_kafka = None
    site.receive("rows", 50, 51)
    began_anew(site)
    assert site.routed == [("rows", 50), ("rows", 51), ("anew", 0)]
