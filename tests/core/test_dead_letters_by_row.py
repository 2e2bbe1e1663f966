"""Failures of tables in row order: each row's own affair, and the record whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from building import Scripted, chunk, delivery, record, unit
from hypothesis import given, settings
from hypothesis import strategies as st
from processing import BAD, Stage

from handlers import Batch, Handler, Rejected, TargetUnavailable
from offsets.types import Checkpoint
from worker.formats.interface import Record
from worker.units.table import Table
from worker.units.unit import Shards, Unit


@dataclass
class Letters:
    """In place of the topic."""

    sent: list[tuple[int, int | None]] = field(default_factory=list)
    """(offset, index)"""

    def send(self, message: Record, **fields: Any) -> str:
        self.sent.append((message.offset(), fields["index"]))
        return "written"


def by_row(handler: Handler) -> Unit:
    made = unit(
        "orders", handler, on_failure="dead_letter", retry={"initial_delay": 0.001, "max_delay": 0.005}
    )
    made.table = Table("shop", "orders", made.table.rule, made.table.handlers, by_row=True)
    made.shards = Shards()
    return made


def run(letters: Letters, handler: Handler, records: list[Record]) -> Stage:
    stage = Stage(lanes=4, on_undecodable="dead_letter", letters=letters)  # type: ignore[arg-type]  # only `send`
    table = by_row(handler)
    stage.lanes.offer(delivery((table, chunk(stage.partition, records))))
    stage.start()
    stage.wait(lambda: stage.checkpoint() == Checkpoint(len(records)))
    stage.stop()
    return stage


@settings(max_examples=30, deadline=None)  # each runs threads
@given(
    bad=st.sets(st.tuples(st.integers(0, 7), st.integers(0, 3)), max_size=8),
    named=st.booleans(),
)
def test_exactly_the_poisonous_rows_become_letters_and_all_others_are_applied_once(
    bad: set[tuple[int, int]], named: bool
) -> None:
    applied: list[tuple[int, int]] = []

    def script(batch: Batch) -> None:
        rows = [(change.offset, change.index) for change in batch.changes]
        at = next((place for place, row in enumerate(rows) if row in bad), None)
        if at is not None:
            raise Rejected("never", at=at if named else None)
        applied.extend(rows)

    letters = Letters()
    run(letters, Scripted(script), [record(n, rows=4) for n in range(8)])
    assert sorted(letters.sent) == sorted(bad)
    everything = {(n, row) for n in range(8) for row in range(4)}
    assert sorted(applied) == sorted(everything - bad)


def test_an_undecodable_record_is_a_letter_among_rows_that_are_spread() -> None:
    letters = Letters()
    applied: list[int] = []
    handler = Scripted(lambda batch: applied.extend(change.offset for change in batch.changes))
    run(letters, handler, [record(0, rows=2), record(1, value=BAD), record(2, rows=2)])
    assert letters.sent == [(1, None)]
    assert sorted(applied) == [0, 0, 2, 2]


def test_a_target_that_is_down_is_tried_by_one_row_at_a_time_and_all_go_on_when_it_is_back() -> None:
    calls: list[int] = []
    applied: list[int] = []

    def script(batch: Batch) -> None:
        calls.append(1)
        if len(calls) < 20:
            raise TargetUnavailable("connection refused")
        applied.extend(change.offset for change in batch.changes)

    run(Letters(), Scripted(script), [record(n) for n in range(16)])
    assert sorted(applied) == list(range(16))
