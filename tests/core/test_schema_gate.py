"""Records whose schema is not known yet are held in their order, with the end of their partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
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
        self.told: list[set[Assignment]] = []

    def single(self, _why: str, held: Any) -> None:
        self.told.append(set(held))


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
    gate: HeldRecords, assignment: Assignment, pauses: Pauses
) -> None:
    first, unknown, known, later, last = values(b"a1", b"b", b"a2", b"a3", b"c")
    assert gate.add(assignment, [first, unknown, known]) == [first]
    assert gate.add(assignment, [later, last]) == []
    assert list(gate.due()) == []
    assert pauses.told == [{assignment}]
    reading = cast(Reading, assignment.format)
    reading.known.add(b"b")
    assert list(gate.due()) == [(assignment, [unknown, known, later])]
    assert pauses.told == [{assignment}], "the last one waits still"
    reading.known.add(b"c")
    assert list(gate.due()) == [(assignment, [last])]
    assert pauses.told == [{assignment}, set()]
    assert not gate


def test_the_end_of_a_partition_is_told_after_what_is_held_of_it(
    gate: HeldRecords, assignment: Assignment, pauses: Pauses
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
    assert pauses.told[-1] == set()


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
    gate.revoked([assignment])
    cast(Reading, assignment.format).known.add(b"b")
    assert list(gate.due()) == []
    assert pauses.told == [{assignment}, set()]


def test_a_format_without_schemas_waits_for_nothing(gate: HeldRecords) -> None:
    plain = begun(Debezium())
    records = values(b"b")
    assert gate.add(plain, records) is records
