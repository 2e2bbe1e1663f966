"""Records whose schema is not known yet are held in their order, with the end of their partition.

Their partition is paused if that takes longer than a moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast
from unittest.mock import Mock

import pytest
from building import Clock
from captured import CapturedRecord

from offsets.restore import Start
from offsets.types import Checkpoint, TopicPartition
from worker.fetching.held_records import HeldRecords
from worker.formats.debezium.format import Debezium
from worker.formats.interface import Record
from worker.units.assigned_partition import Assignment, Assignments


class Reading(Debezium):
    """Knows a value's schema by its first byte."""

    def __init__(self) -> None:
        super().__init__()
        self.known = {b"a"}

    def ready(self, records: Sequence[Record]) -> int:
        heads = [(record.value() or b"")[:1] in self.known for record in records]
        return heads.index(False) if False in heads else len(heads)


class Pauses:
    def __init__(self) -> None:
        self.held: set[Assignment] = set()

    def single(self, _why: str, held: Any) -> None:
        self.held = set(held)


def begun(format_: Debezium) -> Assignment:
    """Kafka has taken its first commit."""
    made = Assignment(TopicPartition("t", 0), 1, Start(0, (), "initial", ""), cast(Any, format_))
    made.in_kafka = Checkpoint(0)
    return made


END = 7


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
def gate(pauses: Pauses) -> HeldRecords:
    return HeldRecords(
        cast(Any, pauses), Assignments(), commit=lambda: None, lose=lambda *_: None, clock=lambda: 0.0
    )


@pytest.fixture
def assignment() -> Assignment:
    return begun(Reading())


def values(*texts: bytes) -> list[Record]:
    return [CapturedRecord("t", 0, 0, 0, None, text, []) for text in texts]


def test_what_follows_a_record_that_waits_waits_too_though_it_is_known(
    gate: HeldRecords, assignment: Assignment
) -> None:
    first, unknown, known, later, last = values(b"a1", b"b", b"a2", b"a3", b"c")
    assert gate.add(assignment, [first, unknown, known]) == [first]
    assert gate.add(assignment, [later, last]) == []
    assert list(gate.due()) == []
    reading = cast(Reading, assignment.format)
    reading.known.add(b"b")
    assert list(gate.due()) == [(assignment, [unknown, known, later])]
    assert gate, "the last one waits still"
    reading.known.add(b"c")
    assert list(gate.due()) == [(assignment, [last])]
    assert not gate


def test_a_partition_is_paused_if_its_schema_takes_longer_than_a_moment(
    gate: HeldRecords, assignment: Assignment, pauses: Pauses
) -> None:
    """librdkafka fetches a resumed partition up to a second later; most schemas come sooner."""
    gate.add(assignment, values(b"b"))
    gate.between_polls(1.0)
    gate.between_polls(1.05)
    assert pauses.held == set()
    gate.between_polls(1.15)
    assert pauses.held == {assignment}
    cast(Reading, assignment.format).known.add(b"b")
    assert len(list(gate.due())) == 1
    gate.between_polls(1.2)
    assert pauses.held == set()


def test_a_partition_is_paused_at_once_if_many_records_wait(
    gate: HeldRecords, assignment: Assignment, pauses: Pauses
) -> None:
    gate.between_polls(1.0)
    gate.add(assignment, values(*[b"b"] * 20_001))
    gate.between_polls(1.0)
    assert pauses.held == {assignment}


def test_a_partition_whose_first_commit_is_taken_in_a_moment_is_not_paused(pauses: Pauses) -> None:
    assignment = begun(Debezium())
    assignment.in_kafka = None
    assignments = Assignments()
    assignments.add([assignment])
    clock, commit = Clock(), Mock()
    gate = HeldRecords(cast(Any, pauses), assignments, commit=commit, lose=lambda *_: None, clock=clock)
    gate.assigned([assignment])
    assert gate.add(assignment, records := values(b"b")) == []
    gate.between_polls(clock.now + 0.05)
    assert pauses.held == set()
    commit.assert_called_once_with()
    assignment.in_kafka = Checkpoint(0)
    gate.between_polls(clock.now + 0.09)
    assert pauses.held == set(), "the next poll brings what is held"
    assert list(gate.due()) == [(assignment, records)]


def test_the_end_of_a_partition_is_told_after_what_is_held_of_it(
    gate: HeldRecords, assignment: Assignment
) -> None:
    assert gate.ended(assignment, END)
    gate.add(assignment, values(b"b"))
    assert not gate.ended(assignment, END)
    assert gate.ends() == []
    cast(Reading, assignment.format).known.add(b"b")
    assert len(list(gate.due())) == 1
    assert gate.ends() == [(assignment, END)]
    assert gate.ends() == []
    assert not gate


def test_an_end_that_something_followed_is_none(gate: HeldRecords, assignment: Assignment) -> None:
    gate.add(assignment, values(b"b"))
    assert not gate.ended(assignment, END)
    gate.add(assignment, values(b"b"))
    cast(Reading, assignment.format).known.add(b"b")
    [(_, records)] = gate.due()
    assert len(records) == 2
    assert gate.ends() == []


def test_what_is_held_of_a_partition_that_left_is_forgotten(
    gate: HeldRecords, assignment: Assignment, pauses: Pauses
) -> None:
    gate.add(assignment, values(b"b"))
    gate.between_polls(-1.0)
    gate.between_polls(0.0)
    assert pauses.held == {assignment}
    gate.revoked([assignment])
    assert pauses.held == set()
    cast(Reading, assignment.format).known.add(b"b")
    assert list(gate.due()) == []


def test_a_format_without_schemas_waits_for_nothing(gate: HeldRecords) -> None:
    plain = begun(Debezium())
    records = values(b"b")
    assert gate.add(plain, records) is records
