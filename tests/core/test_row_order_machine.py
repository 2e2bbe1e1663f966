"""Shards and barriers under every order of events: order kept, nothing lost or doubled, counters true."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from building import assignment
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from row_model import POLLS
from row_stage import LANES, MAX_BYTES, MAX_RECORDS, RowStage, numbers
from stepping import Doing, SteppedWithdrawal

from worker.configuration import LanesRule
from worker.units.table import Table

pytestmark = pytest.mark.timeout(900)  # a counterexample is made small first: that takes minutes


class RowOrderMachine(RowStage):
    # -- the fetcher

    @rule(polls=st.lists(POLLS, min_size=1, max_size=2))
    def fetch(self, polls: list[tuple[int, list[tuple[str, str, list[Any]]]]]) -> None:
        if self.held or self.withdrawal is not None:
            return
        parts = []
        for number, wanted in polls:
            of = self.routed.partitions[number]
            made = []
            for each in wanted:
                made.append(self.model.record(of, self.next[number], *each))
                self.next[number] += 1
            parts.append((of, made))
        self.held += self.routed.poll(*parts).pieces(MAX_RECORDS, MAX_BYTES)
        self.offer()

    @precondition(lambda self: self.held or self.withdrawal is not None)
    @rule()
    def step_the_fetcher(self) -> None:
        if self.withdrawal is None:
            self.offer()
        elif not self.withdrawal.asleep:
            self.withdrawal.step()
            self.see_whether_it_has_left()

    @rule(partition=st.integers(0, 1), patience=st.sampled_from([0.0, 5.0]))
    def a_partition_leaves_and_comes_again(self, partition: int, patience: float) -> None:
        if self.withdrawal is not None:
            return
        gone = self.routed.partitions[partition]
        gone.closed = True
        if self.held:
            self.held = deque(rest for each in self.held if (rest := each.without({gone})).parts)
            if not self.held:
                self.lanes.forget_refused()
        self.withdrawal = SteppedWithdrawal(self.lanes, self.clock, self.units, gone, patience)
        self.model.leaves(gone, self.running())
        self.see_whether_it_has_left()

    def see_whether_it_has_left(self) -> None:
        assert self.withdrawal is not None
        gone, tables = self.withdrawal.gone, self.withdrawal.running
        if tables is None:
            return
        running = [work for work in self.running() if any(piece.assignment is gone for piece in work.chunks)]
        assert set(tables) == {work.unit.table.label for work in running}
        assert len(tables) == len(set(tables))
        self.withdrawal = None
        self.gone.append(gone)
        partition = gone.partition.partition
        self.routed.partitions[partition] = assignment(partition, start=self.next[partition])

    # -- batches that are not done

    @rule(number=numbers, delay=st.sampled_from([0.0, 2.0, 9.0]), part=st.integers(0, 4))
    def give_back(self, number: int, delay: float, part: int) -> None:
        processor = self.processors[number]
        work = processor.work
        if work is not None:
            self.model.finish(work, min(part, work.records - 1))
            self.model.give_up(work)
            self.lanes.give_back(number, work, delay=delay, error="it failed")
            processor.put_down()

    @rule(number=numbers, part=st.integers(0, 2))
    def halt(self, number: int, part: int) -> None:
        processor = self.processors[number]
        work = processor.work
        if work is not None:
            self.model.finish(work, min(part, work.records - 1))
            self.model.give_up(work)
            self.lanes.halt(number, work, "it failed for good")
            assert work.withdrawn or next(u for u in self.units if u.table is work.unit.table).halted
            processor.put_down()

    @rule(number=numbers, part=st.integers(1, 4))
    def shorten(self, number: int, part: int) -> None:
        processor = self.processors[number]
        work = processor.work
        if work is not None and work.unit.shard is None and work.finished == 0 and part < work.records:
            processor.work = first = self.lanes.shorten(number, work, part)
            assert first.decode(lambda _record, _fault: False) is None
            self.model.give_up(work, but=first)

    @rule(table=st.integers(0, 3), at_once=st.booleans())
    def a_table_is_parked(self, table: int, at_once: bool) -> None:
        self.park(self.units[table].members())
        if at_once:
            self.what_was_written_counts()

    @rule()
    def what_was_written_is_told(self) -> None:
        self.what_was_written_counts()

    @rule(seconds=st.sampled_from([1.0, 4.0, 10.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds

    # -- the configuration changes

    @rule(count=st.integers(1, LANES), stealing=st.booleans())
    def the_lanes_change(self, count: int, stealing: bool) -> None:
        if self.withdrawal is not None:
            return
        self.stealing = stealing
        bounds = LanesRule(count=count, max_records=MAX_RECORDS, max_bytes=MAX_BYTES, work_stealing=stealing)
        for number in self.lanes.resize(bounds, lambda unit: self.units.index(unit) % count, self.units):
            assert self.processors[number].doing in (Doing.STOPPED, Doing.NOTHING)
            self.processors[number].doing = Doing.NOTHING
        for each in self.held:
            each.recount()

    @rule(tables=st.sets(st.integers(0, 3), min_size=1))
    def tables_get_other_handlers(self, tables: set[int]) -> None:
        if self.withdrawal is not None:
            return
        changed = []
        for unit in (self.units[number] for number in sorted(tables)):
            old = unit.table
            new = Table(old.database, old.name, old.rule, old.handlers, by_row=old.by_row)
            changed.append((unit, new))
        self.lanes.give_tables(changed)

    def teardown(self) -> None:
        if not hasattr(self, "lanes"):
            return
        try:
            self.drain()
            for partition in (0, 1):
                self.a_partition_leaves_and_comes_again(partition, 0.0)
            assert not any(self.model.waiting.values())
            assert all(lane.records == lane.bytes == 0 for lane in self.lanes.lanes)
            assert not any(each.chunks for each in self.units), "no barrier is left"
        finally:
            self.lanes.stop()
            for processor in self.processors:
                processor.close()
            self.lot.close()
            self.folder.cleanup()


class ByRow(RowOrderMachine):
    order_by = "row"


class ByTable(RowOrderMachine):
    order_by = "table"


ByRow.TestCase.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)
ByTable.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
test_rows_in_order_under_every_order_of_events = ByRow.TestCase
test_statements_about_several_tables_under_every_order_of_events = ByTable.TestCase


def test_what_a_shortened_batch_held_of_a_partition_that_left_is_nobodys_any_more() -> None:
    """The model must forget it, too, or it would wait for it before everything that comes later."""
    machine = ByTable()
    machine.begin(stealing=False)
    machine.fetch(polls=[(1, [("row", "t0", [0]), ("row", "t0", [1])]), (0, [("row", "t0", [2])])])
    machine.everybody_looks_for_work()
    [work] = machine.running()
    number = work.unit.lane
    machine.a_partition_leaves_and_comes_again(partition=0, patience=0.0)
    machine.shorten(number=number, part=1)
    machine.finish(number=number)
    machine.everybody_looks_for_work()
    assert [item.key for item in machine.model.waiting["t0"]] == ["keyless"]
    machine.teardown()
