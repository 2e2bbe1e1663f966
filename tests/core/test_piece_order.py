"""Records that were taken apart by their tables: when they count as finished, against a naive model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from offsets.run import Run
from worker.units.piece_order import PieceOrder, TableRun

Polls = Sequence[Sequence[dict[str, int]]]
"""Of each poll the records; of each record the tables, and how many pieces each has."""


@dataclass
class Stage:
    """One partition."""

    polls: Polls
    order: PieceOrder = field(default_factory=PieceOrder)

    def __post_init__(self) -> None:
        self.records = [record for poll in self.polls for record in poll]
        self.runs: list[Run] = []
        self.queues: dict[str, list[tuple[TableRun, int]]] = {}
        """Table -> what it has to finish, in order: a piece each."""
        self.expected: set[int] = set()
        offset = 0
        for poll in self.polls:
            run = Run(offset, range(offset, offset + len(poll)))
            self.runs.append(run)
            own: dict[tuple[str, str], list[int]] = {}
            for place, record in enumerate(poll):
                for table, pieces in record.items():
                    own.setdefault(("shop", table), []).extend([offset + place] * pieces)
            apart = {offset + place for place, record in enumerate(poll) if sum(record.values()) > 1}
            runs = self.order.runs(run, own, apart)
            for table, offsets in own.items():
                self.queues.setdefault(table[1], []).extend((runs[table], each) for each in offsets)
            offset += len(poll)

    def finish(self, table: str, count: int, first: int = 0) -> None:
        """The table is through with so many more pieces, at one go for each run. `first`: not the next ones,
        as in row order."""
        queue = self.queues[table]
        taken, self.queues[table] = queue[first : first + count], queue[:first] + queue[first + count :]
        while taken:
            run = taken[0][0]
            run.finish([offset for each, offset in taken if each is run])
            taken = [one for one in taken if one[0] is not run]
            self._expect(
                pending={(name, offset) for name, left in self.queues.items() for _, offset in left}
                | {(table, offset) for _, offset in taken}
            )

    def _expect(self, pending: set[tuple[str, int]]) -> None:
        """What is done counts, unless a record before it in one of its tables is done there and does not."""
        waiting: set[str] = set()
        for offset, record in enumerate(self.records):
            if offset in self.expected:
                continue
            done_in = {table for table in record if (table, offset) not in pending}
            if done_in == record.keys() and not waiting & done_in:
                self.expected.add(offset)
            elif sum(record.values()) > 1:
                waiting |= done_in

    def counted(self) -> set[int]:
        return {
            offset
            for run in self.runs
            for offset in range(run.start, run.end)
            if not run.is_unfinished(offset)
        }


TABLES = "abc"
record_of_tables = st.dictionaries(st.sampled_from(TABLES), st.integers(1, 3), min_size=1)
plans = st.lists(st.lists(record_of_tables, min_size=1, max_size=5), min_size=1, max_size=4)
steps = st.lists(st.tuples(st.sampled_from(TABLES), st.integers(1, 4), st.integers(0, 3)), max_size=30)


@given(plans, steps, st.booleans())
def test_a_record_counts_when_all_of_it_is_done_and_nothing_before_it_in_its_tables_waits(
    polls: list[list[dict[str, int]]], found: list[tuple[str, int, int]], by_row: bool
) -> None:
    stage = Stage(polls)
    for table, count, first in [*found, *((table, 1000, 0) for table in TABLES)]:
        if stage.queues.get(table):
            stage.finish(table, count, first if by_row else 0)
            assert stage.counted() == stage.expected
    assert stage.counted() == set(range(len(stage.records)))
    assert stage.order.held_back == 0


def test_what_a_table_has_done_behind_a_record_that_waits_for_another_does_not_count_yet() -> None:
    stage = Stage([[{"a": 1, "b": 1}, {"a": 1}], [{"a": 1}, {"c": 1}]])
    stage.finish("a", 3)
    stage.finish("c", 1)
    assert (stage.counted(), stage.order.held_back) == ({3}, 3)
    stage.finish("b", 1)
    assert (stage.counted(), stage.order.held_back) == ({0, 1, 2, 3}, 0)


def test_a_record_waits_for_one_before_it_of_which_it_shares_a_table() -> None:
    stage = Stage([[{"a": 1, "b": 1}, {"a": 1, "c": 1}]])
    stage.finish("a", 2)
    stage.finish("c", 1)
    assert stage.counted() == set(), "a restart would repeat the first one's piece of a after the second's"
    stage.finish("b", 1)
    assert stage.counted() == {0, 1}


def test_records_that_two_tables_are_through_with_in_another_order_do_not_wait_for_each_other() -> None:
    stage = Stage([[{"a": 1, "b": 1}, {"a": 1, "b": 1}]])
    stage.finish("a", 1, first=1)
    stage.finish("b", 1)
    stage.finish("a", 1)
    assert stage.counted() == {0}
    stage.finish("b", 1)
    assert stage.counted() == {0, 1}


def test_a_record_with_a_statement_among_a_tables_rows_counts_with_the_last_of_them() -> None:
    stage = Stage([[{"a": 3}, {"a": 1}]])
    stage.finish("a", 1)
    stage.finish("a", 1)
    assert stage.counted() == set()
    stage.finish("a", 1)
    assert stage.counted() == {0}
