"""Several pieces of one record in one table: rows before and behind a statement about another table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
from building import TOPIC, assignment
from canal_packets import ddl, packet, row, rows
from confluent_kafka import Message
from processing import NOW, Stage
from row_building import Routed

from handlers import Batch, Change, Rejected
from offsets.types import Checkpoint
from worker.dead_letters.writing import DeadLetters
from worker.formats.interface import Record
from worker.lanes.record_location import locate
from worker.units.unit import UnitState

STATEMENT = ddl("b", "ALTER TABLE b ADD x int")


def insert(*ids: int) -> bytes:
    return rows("a", *(row({"id": str(each)}) for each in ids))


class Letters:
    """In place of the topic: keeps what it is given."""

    def __init__(self) -> None:
        self.sent: list[Record] = []

    def send(self, message: Record, **_fields: object) -> str:
        self.sent.append(message)
        return "written"


def packed(*entries: bytes, offset: int = 0) -> Record:
    made = Message(topic=TOPIC, partition=0, offset=offset, value=packet(*entries))
    return cast(Record, made)


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    stage.start()
    yield stage
    stage.stop()


@pytest.mark.parametrize("order_by", ["table", "row"])
def test_each_piece_is_handled_in_order_and_the_record_counts_when_all_are_done(
    stage: Stage, order_by: str
) -> None:
    routed = Routed({"match": "shop.*"}, order_by=order_by, lanes=1)
    partition = assignment(0)
    several = packed(insert(*range(30)), STATEMENT, insert(0, 1), STATEMENT, insert(*range(30, 40)))
    assert stage.lanes.offer(routed.poll((partition, [several, packed(insert(50), offset=1)])))
    stage.wait(lambda: partition.tracker.checkpoint() == Checkpoint(2))
    of_row = [
        change.index
        for batch in routed.handler.batches
        for change in batch.changes
        if change.after in ({"id": 0}, {"id": 1})
    ]
    assert len(of_row) == 4
    assert of_row[:2] != of_row[2:]
    assert all(first < later for first, later in zip(of_row[:2], of_row[2:], strict=True))


def test_a_piece_that_fails_behind_one_that_is_done_is_found_and_is_its_own_dead_letter() -> None:
    def refuse(batch: Batch) -> None:
        for at, change in enumerate(batch.changes):
            if change.after == {"id": 2}:
                raise Rejected("never", at=at)

    letters = Letters()
    for on_failure in ("halt", "dead_letter"):
        stage = Stage(letters=cast(DeadLetters, letters))
        rule = {"match": "shop.a", "retry": {"max_attempts": 1, **NOW}, "on_failure": on_failure}
        routed = Routed(rule, order_by="table", lanes=1)
        routed.handler.script = refuse
        partition = assignment(0)
        assert stage.lanes.offer(routed.poll((partition, [packed(insert(1), STATEMENT, insert(2))])))
        unit = routed.unit("a")
        stage.run(unit)
        assert not stage.errors
        if on_failure == "halt":
            assert unit.state is UnitState.HALTED
            found = locate(stage.lanes, [unit], {partition: 0}, 0.0)
            assert [place.doing for place in found.get(partition, ())] == ["halted"]
        else:
            assert partition.tracker.checkpoint() == Checkpoint(1)
            [letter] = letters.sent
            changes: list[Change] = []
            partition.format.decode(letter, changes)
            assert [change.after for change in changes] == [{"id": 2}]
