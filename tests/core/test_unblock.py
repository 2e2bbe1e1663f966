"""A record that blocks its table is set aside when a person says so: that record, and nothing else."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from building import Scripted, assignment, chunk, ddl, delivery, record, unit
from hypothesis import given, settings
from hypothesis import strategies as st
from processing import BAD, NOW, Stage
from row_building import row_unit, rows
from structlog.testing import capture_logs
from unblock_stage import Hasty, Letters, Unblocked

from handlers import Batch, Handler, PartialFailure, Rejected, TargetUnavailable
from handlers.coroutines import awaited
from offsets.types import Checkpoint
from worker.attempts.steps import MustHalt, MustWait, SetAside
from worker.lanes.record_location import set_aside
from worker.units.unit import Unit, UnitState

ONCE = {"max_attempts": 1, **NOW}
FOR_EVER = {"max_attempts": None, "initial_delay": 1000.0, "max_delay": 1000.0, "jitter": 0.0}
"""Tried once; then, for as long as a test may take, it waits to be tried again."""

Start = Callable[..., Stage]


@pytest.fixture
def start() -> Iterator[Start]:
    """start(...): a stage whose processors run."""
    stages: list[Stage] = []

    def make(letters: Letters | None = None, **more: Any) -> Stage:
        stage = Stage(letters=letters, **more)  # type: ignore[arg-type]  # only `send` is used
        stages.append(stage)
        stage.start()
        return stage

    yield make
    for stage in stages:
        stage.stop()


class Applying(Scripted):
    """Notes what it has applied; raises at bad changes, before any of the batch is applied."""

    def __init__(self, bad: set[tuple[int, int]], error: Callable[[int], BaseException]) -> None:
        super().__init__(self._apply)
        self.bad = bad
        self.error = error
        self.applied: list[tuple[int, int]] = []

    def _apply(self, batch: Batch) -> None:
        changes = [(change.offset, change.index) for change in batch.changes]
        for at, change in enumerate(changes):
            if change in self.bad:
                error = self.error(at)
                if isinstance(error, PartialFailure):
                    self.applied += changes[:at]
                raise error
        self.applied += changes


def stands(stage: Stage, *units: Unit) -> None:
    """Wait until nothing of these moves any more."""
    still = (UnitState.IDLE, UnitState.HALTED, UnitState.BACKOFF, UnitState.WAITING_FOR_OTHERS)
    stage.wait(
        lambda: (
            all(m.state in still for each in units for m in each.members()) and not stage.lanes.seen.running()
        )
    )


@pytest.mark.parametrize("action", ["skip", "dead_letter"])
def test_a_halted_table_goes_on_behind_the_record(start: Start, action: Any) -> None:
    letters = Letters()
    handler = Applying({(3, 0)}, lambda _: ValueError("no such column"))
    stage = start(letters)
    table = unit("orders", handler, retry=ONCE)
    stage.offer((table, range(6)))
    stands(stage, table)
    assert table.state is UnitState.HALTED
    unblock = Unblocked(stage, table)
    with capture_logs() as logs:
        answer = unblock.ask(3, action)
    assert (answer.result, answer.committed, unblock.commits) == ("set_aside", True, 1)
    assert answer.position == "cdc.shop[0] offset 3"
    stage.wait(lambda: stage.checkpoint() == Checkpoint(6))
    assert [offset for offset, _ in handler.applied] == [0, 1, 2, 4, 5]
    assert letters.sent == ([(3, 0)] if action == "dead_letter" else [])
    assert answer.letters == (["dead[0] offset 0"] if action == "dead_letter" else [])
    assert stage.counted(f'binlane_unblocked_records_total{{action="{action}"}} 1.0')
    ordered = next(line for line in logs if line["event"] == "unblock_ordered")
    assert (ordered["by"], ordered["client"], ordered["table"]) == ("ann@laptop", "127.0.0.1", "shop.orders")
    done = next(line for line in logs if line["event"] == "unblock_answered")
    assert (done["position"], done["by"], done["result"]) == (
        "cdc.shop[0] offset 3",
        "ann@laptop",
        "set_aside",
    )
    assert table.finished_records == 6


def test_one_of_a_batch_that_is_tried_for_ever_is_set_aside_alone(start: Start) -> None:
    handler = Applying({(0, 0)}, lambda _: ValueError("no"))
    stage = start()
    table = unit("orders", handler, retry=FOR_EVER)
    stage.offer((table, range(4)))
    stands(stage, table)
    assert Unblocked(stage, table).ask(0).result == "set_aside"
    stage.wait(lambda: stage.checkpoint() == Checkpoint(4))
    assert [offset for offset, _ in handler.applied] == [1, 2, 3]
    assert handler.calls[1][1] == [(0, 0)], "it was tried once more, alone"


def test_a_record_that_is_not_to_blame_is_handled(start: Start) -> None:
    handler = Applying({(2, 0)}, lambda _: ValueError("no"))
    stage = start()
    table = unit("orders", handler, retry=FOR_EVER)
    stage.offer((table, range(4)))
    stands(stage, table)
    unblock = Unblocked(stage, table)
    answer = unblock.ask(0)
    assert (answer.result, answer.letters) == ("handled", [])
    assert "nothing was set aside" in answer.message
    stage.wait(lambda: not stage.lanes.seen.running() and table.state is UnitState.BACKOFF)
    assert [offset for offset, _ in handler.applied] == [0]
    assert not stage.counted('binlane_unblocked_records_total{action="skip"} 1.0')


def test_what_waits_for_its_target_is_tried_at_once_and_then_set_aside(start: Start) -> None:
    handler = Applying({(0, 0)}, lambda _: TargetUnavailable("503", retry_after=800))
    stage = start()
    table = unit("orders", handler, retry=FOR_EVER)
    stage.offer((table, range(3)))
    stands(stage, table)
    assert Unblocked(stage, table).ask(0).result == "set_aside"
    stage.lanes.unblock()
    stage.wait(lambda: stage.checkpoint() is not None and stage.checkpoint().offset >= 1)  # type: ignore[union-attr]
    # The rest is the target's affair again.
    handler.bad.clear()
    for bound in table.table.handlers:
        bound.circuit.hurry()
    stage.lanes.unblock()
    stage.wait(lambda: stage.checkpoint() == Checkpoint(3))
    assert [offset for offset, _ in handler.applied] == [1, 2]


def test_other_handlers_of_the_table_get_the_record(start: Start) -> None:
    bad, well = Applying({(1, 0)}, lambda _: ValueError("no")), Applying(set(), lambda _: ValueError())
    stage = start()
    table = unit("orders", bad, well, retry=ONCE)
    stage.offer((table, range(3)))
    stands(stage, table)
    assert Unblocked(stage, table).ask(1).result == "set_aside"
    stage.wait(lambda: stage.checkpoint() == Checkpoint(3))
    assert [offset for offset, _ in bad.applied] == [0, 2]
    assert [offset for offset, _ in well.applied] == [0, 1, 2]


@pytest.mark.parametrize("action", ["skip", "dead_letter"])
def test_an_undecodable_record_that_halts_its_table(start: Start, action: Any) -> None:
    letters, handler = Letters(), Applying(set(), lambda _: ValueError())
    stage = start(letters)
    table = unit("orders", handler)
    stage.offer((table, [0, BAD, 2, 3]))
    stands(stage, table)
    assert table.state is UnitState.HALTED
    assert Unblocked(stage, table).ask(1, action).result == "set_aside"
    stage.wait(lambda: stage.checkpoint() == Checkpoint(4))
    assert [offset for offset, _ in handler.applied] == [0, 2, 3]
    assert letters.sent == ([(1, None)] if action == "dead_letter" else [])


def test_a_statement_that_blocks_its_table(start: Start) -> None:
    handler = Applying({(1, 0)}, lambda _: ValueError("syntax"))
    stage = start()
    table = unit("orders", handler, retry=ONCE)
    stage.lanes.offer(
        delivery(
            (table, chunk(stage.partition, [record(0)])),
            (table, chunk(stage.partition, [ddl(1)], alone=True)),
            (table, chunk(stage.partition, [record(2)])),
        )
    )
    stands(stage, table)
    assert Unblocked(stage, table).ask(1).result == "set_aside"
    stage.wait(lambda: stage.checkpoint() == Checkpoint(3))
    assert [offset for offset, _ in handler.applied] == [0, 2]


def test_a_flood_of_letters_keeps_no_ordered_one_back(start: Start) -> None:
    letters = Letters(refuse=[MustHalt("one too many")])
    handler = Applying({(0, 0)}, lambda _: ValueError("no"))
    stage = start(letters)
    table = unit("orders", handler, retry=ONCE, on_failure="dead_letter")
    stage.offer((table, range(2)))
    stands(stage, table)
    assert table.state is UnitState.HALTED
    assert Unblocked(stage, table).ask(0, "dead_letter").letters == ["dead[0] offset 0"]
    assert letters.ordered_by == ["ann@laptop"]


def test_an_order_stands_until_its_letter_can_be_written(start: Start) -> None:
    letters = Letters(refuse=[MustWait("the topic is away", 1000.0)])
    handler = Applying({(0, 0)}, lambda _: ValueError("no"))
    stage = start(letters)
    table = unit("orders", handler, retry=ONCE)
    stage.offer((table, range(2)))
    stands(stage, table)
    unblock = Unblocked(stage, table, clock=Hasty())
    answer = unblock.ask(0, "dead_letter")
    assert answer.result == "ordered"
    assert "the topic is away" in answer.message
    assert stage.partition.tracker.head == 0
    stage.lanes.unblock()
    stage.wait(lambda: stage.checkpoint() == Checkpoint(2))
    assert letters.sent == [(0, 0)]
    assert stage.counted('binlane_unblocked_records_total{action="dead_letter"} 1.0')


def test_a_record_that_waits_for_a_letter_can_be_passed_over_instead(start: Start) -> None:
    letters = Letters(refuse=[MustWait("the topic is away", 1000.0)])
    handler = Applying({(0, 0)}, lambda _: Rejected("never"))
    stage = start(letters)
    table = unit("orders", handler, on_failure="dead_letter")
    stage.offer((table, range(2)))
    stands(stage, table)
    assert Unblocked(stage, table).ask(0).result == "set_aside"
    stage.wait(lambda: stage.checkpoint() == Checkpoint(2))
    assert letters.sent == []


def test_what_is_the_matter_is_said_and_nothing_is_done(start: Start) -> None:
    handler = Applying({(3, 0)}, lambda _: ValueError("no"))
    stage = start()
    table, other = unit("orders", handler, retry=ONCE), unit("stock")
    stage.offer((table, range(6)), (other, [7]))
    stands(stage, table, other)
    unblock = Unblocked(stage, table, other, letters=False)

    def refused(offset: int, **more: Any) -> str:
        answer = unblock.ask(offset, **more)
        assert (answer.result, answer.committed) == ("refused", False)
        return answer.message

    assert "is not unfinished" in refused(0)
    assert "is not what blocks shop.orders: that is blocked at cdc.shop[0] offset 3" in refused(4)
    assert "has not been read yet (read up to 8)" in refused(100)
    assert "has read no table shop.nothing" in refused(3, table="shop.nothing")
    assert "is of table shop.orders, not of shop.stock" in refused(3, table="shop.stock")
    assert "lacks that partition; it has cdc.shop[0]" in refused(3, partition=9)
    assert "dead_letter.topic is not set" in refused(3, action="dead_letter")
    unblock.held.append((other, chunk(stage.partition, [record(9, "stock")])))
    assert "waits for room in the lanes" in refused(9, table="shop.stock")
    assert table.state is UnitState.HALTED
    assert [offset for offset, _ in handler.applied] == [0, 1, 2]
    assert unblock.commits == 0


def test_an_offset_that_two_partitions_have_must_be_told_apart(start: Start) -> None:
    one, two = assignment(0), assignment(1)
    handler = Applying({(0, 0), (0, 1)}, lambda _: ValueError("no"))
    stage = start()
    table = unit("orders", handler, retry={"max_attempts": None, **FOR_EVER})
    stage.lanes.offer(
        delivery(
            (table, chunk(one, [record(0, rows=2)])), (table, chunk(two, [record(0, rows=2, partition=1)]))
        )
    )
    stands(stage, table)
    unblock = Unblocked(stage, table, partitions=(one, two))
    answer = unblock.ask(0)
    assert answer.result == "refused"
    assert "cdc.shop[0], cdc.shop[1]: give --topic and --partition" in answer.message
    assert unblock.ask(0, partition=1).result == "refused", "that is behind the other"
    assert unblock.ask(0, partition=0).result == "set_aside"
    assert (one.tracker.head, two.tracker.head) == (None, 0)


def test_a_record_of_a_topic_that_was_made_anew_meanwhile_is_set_aside_before_those_of_the_new_one(
    start: Start,
) -> None:
    former, new = assignment(), assignment()
    new.epoch, new.before = 2, former
    handler = Applying({(0, 0)}, lambda _: ValueError("no such column"))
    stage = start()
    table = unit("orders", handler, retry=ONCE)
    stage.lanes.offer(
        delivery(
            (table, chunk(former, [record(0), record(1), record(2)])),
            (table, chunk(new, [record(0), record(1)])),
        )
    )
    stands(stage, table)
    unblock = Unblocked(stage, table, partitions=(new,))
    assert "has not been read yet (read up to 2)" in unblock.ask(2_000).message
    assert unblock.ask(0).result == "set_aside"
    stands(stage, table)
    assert (former.tracker.head, new.tracker.head) == (None, 0), "the new one's is tried for itself"
    assert unblock.ask(0).result == "set_aside"
    stage.wait(lambda: new.tracker.checkpoint() == Checkpoint(2))
    assert [offset for offset, _ in handler.applied] == [1, 2, 1]


def test_an_order_stands_though_one_about_another_record_of_the_batch_follows(start: Start) -> None:
    """One handler stands at the record, and another before it, which comes to it later."""
    first = Applying({(0, 0), (1, 0)}, lambda _: ValueError("no"))
    second = Applying({(1, 0)}, lambda _: ValueError("no"))
    stage = start()
    table = unit("orders", first, second, retry=ONCE)
    stage.offer((table, range(3)))
    stands(stage, table)
    unblock = Unblocked(stage, table, clock=Hasty())
    assert unblock.ask(1).result == "ordered"
    assert unblock.ask(0).result == "set_aside"
    stage.wait(lambda: stage.checkpoint() == Checkpoint(3))
    assert [offset for offset, _ in first.applied] == [2]
    assert [offset for offset, _ in second.applied] == [0, 2]


def test_a_handler_that_runs_is_left_alone(start: Start) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def hang(_: Batch) -> None:
        inside.set()
        go_on.wait(30)

    stage = start()
    table = unit("orders", Scripted(hang))
    stage.offer((table, range(2)))
    assert inside.wait(10)
    answer = Unblocked(stage, table, clock=Hasty()).ask(0)
    assert answer.result == "refused"
    assert "handler h0 for" in answer.message
    assert "cannot be interrupted" in answer.message
    assert "checkpoint set CONFIG --topic cdc.shop --partition 0 --offset 1" in answer.message
    assert not stage.calls.cancel("the time is over"), "it has no coroutine"
    go_on.set()
    stage.wait(lambda: stage.checkpoint() == Checkpoint(2))


class Hanging(Handler):
    """One row waits, each time that it comes. Its first call ignores cancellations."""

    def __init__(self, row: int, *, ignores: int = 0) -> None:
        self.row = row
        self.applied: list[int] = []
        self.waiting = 0
        self._ignores = ignores

    async def handle(self, batch: Batch) -> None:
        offsets = [change.offset for change in batch.changes]
        if self.row in offsets:
            self.waiting += 1
            while self._ignores:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(60)
                self._ignores -= 1
            await asyncio.sleep(60)
        self.applied += offsets


def test_a_coroutine_that_hangs_is_cancelled(start: Start) -> None:
    stage, handler, slow = start(lanes=2), Hanging(1), Hanging(3)
    table = unit("orders", awaited(handler), retry=FOR_EVER)
    stage.offer((table, range(3)), (unit("items", awaited(slow), lane=1, retry=FOR_EVER), [3]))
    unblock = Unblocked(stage, table, clock=lambda: time.monotonic() * 3)
    stage.wait(lambda: handler.waiting == slow.waiting == 1)
    assert unblock.ask(0).result == "handled", "it is the first of the batch, but not what hangs"
    stage.wait(lambda: handler.waiting > 1)
    assert unblock.ask(1).result == "set_aside", "though its last attempt hangs, too"
    stage.wait(lambda: stage.checkpoint() == Checkpoint(3))
    assert handler.applied == [0, 2]
    assert [call.attempt for call in stage.calls.current().values()] == [1], "another table's is left alone"
    assert stage.calls.cancel("the test is over")


def test_a_coroutine_that_ignores_an_order_is_cancelled_by_the_next(start: Start) -> None:
    stage, handler = start(lanes=2), Hanging(0, ignores=1)
    table = unit("orders", awaited(handler), retry=FOR_EVER)
    stage.offer((table, range(2)))
    unblock = Unblocked(stage, table, clock=lambda: time.monotonic() * 3)
    stage.wait(lambda: handler.waiting == 1)
    answer = unblock.ask(0)
    assert answer.result == "refused"
    assert "It was cancelled, and has not ended: unblock it again" in answer.message
    with capture_logs():  # a shown traceback would take longer than an order waits
        assert unblock.ask(0).result == "set_aside"
    stage.wait(lambda: stage.checkpoint() == Checkpoint(2))
    assert handler.applied == [1]


def test_a_coroutine_that_hangs_at_a_later_record_is_cancelled(start: Start) -> None:
    """Nobody knows at which record of its batch it hangs."""
    stage, handler = start(lanes=2), Hanging(2)
    table = unit("orders", awaited(handler), retry=FOR_EVER)
    stage.offer((table, range(5)))
    unblock = Unblocked(stage, table, clock=lambda: time.monotonic() * 3)
    stage.wait(lambda: handler.waiting == 1)
    with capture_logs():  # a shown traceback would take longer than an order waits
        assert unblock.ask(2).result == "set_aside"
    stage.wait(lambda: stage.checkpoint() == Checkpoint(5))
    assert handler.applied == [0, 1, 3, 4]
    assert handler.waiting == 2, "the records before it were tried without it"


def slow_before(row: int, seconds: float) -> Hanging:
    """A handler whose calls without this row take a while."""

    class Slow(Hanging):
        async def handle(self, batch: Batch) -> None:
            if all(change.offset != row for change in batch.changes):
                await asyncio.sleep(seconds)
            await super().handle(batch)

    return Slow(row)


@pytest.mark.parametrize("attempts", [1, 2], ids=["split at once", "tried again"])
def test_no_call_without_the_record_is_cancelled(start: Start, attempts: int) -> None:
    """Its rows would be skipped, though nobody named them."""
    stage, handler = start(), slow_before(2, 0.4)
    retry = {**ONCE, "max_attempts": attempts}
    table = unit("orders", awaited(handler), retry=retry, on_failure="skip")
    stage.offer((table, range(5)))
    unblock = Unblocked(stage, table, clock=lambda: time.monotonic() * 15)
    stage.wait(lambda: handler.waiting == 1)
    with capture_logs():
        while stage.partition.tracker.is_unfinished(2):
            unblock.ask(2)
    stage.wait(lambda: stage.checkpoint() == Checkpoint(5))
    assert handler.applied == [0, 1, 3, 4]


def test_an_order_in_a_batch_cut_anew_is_about_its_record_alone(start: Start) -> None:
    handler = Applying({(0, 0)}, lambda _: TargetUnavailable("503", retry_after=800))
    table = unit("orders", handler, on_failure="skip")
    stage = start()
    table.orders[stage.partition, 0] = order = SetAside("skip", "ann")
    stage.offer((table, range(4)))
    stage.wait(lambda: order.changes)
    handler.bad.clear()
    for bound in table.table.handlers:
        bound.circuit.hurry()
    stage.lanes.unblock()
    stage.wait(lambda: stage.checkpoint() == Checkpoint(4))
    assert [offset for offset, _ in handler.applied] == [1, 2, 3]


def test_an_order_about_a_record_behind_a_bad_one_waits_for_it(start: Start) -> None:
    first, second = Applying(set(), lambda _: ValueError()), Applying(set(), lambda _: ValueError())
    table, stage = unit("orders", first, second), start()
    table.orders[stage.partition, 3] = SetAside("skip", "ann")
    stage.offer((table, [0, BAD, 2, 3]))
    stage.wait(lambda: table.halted)
    assert first.applied == second.applied == [(0, 0)]


def test_a_batch_that_is_just_tried_again_is_waited_for(start: Start) -> None:
    """A table with short delays runs much of the time."""
    handler = Applying({(0, 0)}, lambda _: ValueError("no"))
    stage = start()
    table = unit("orders", handler, retry={"max_attempts": None, "initial_delay": 0.001, "max_delay": 0.002})
    stage.offer((table, range(3)))
    stage.wait(lambda: len(handler.calls) > 3)
    assert Unblocked(stage, table).ask(0).result == "set_aside"
    stage.wait(lambda: stage.checkpoint() == Checkpoint(3))
    assert [offset for offset, _ in handler.applied] == [1, 2]


ERRORS: tuple[Callable[[int], BaseException], ...] = (
    lambda _: ValueError("no"),
    lambda at: PartialFailure(at, cause=ValueError("no")),
    lambda at: Rejected("never", at=at),
    lambda _: Rejected("one of them"),
)
bad_changes = st.sets(st.tuples(st.integers(0, 11), st.integers(0, 2)), max_size=6)


@settings(max_examples=40, deadline=None)  # each runs threads
@given(bad=bad_changes, kind=st.sampled_from(ERRORS), for_ever=st.booleans(), dead=st.booleans())
@pytest.mark.parametrize("by_row", [False, True])
def test_only_the_named_records_are_set_aside_and_all_others_come_in_their_order(
    by_row: bool, bad: set[tuple[int, int]], kind: Callable[[int], BaseException], for_ever: bool, dead: bool
) -> None:
    letters, handler = Letters(), Applying(bad, kind)
    stage = Stage(3, letters=letters)  # type: ignore[arg-type]  # only `send` is used
    retry = {"max_attempts": None, "initial_delay": 0.001, "max_delay": 0.001} if for_ever else ONCE
    table = (row_unit if by_row else unit)("orders", handler, retry=retry)
    made = [rows(offset, *(10 * row + offset % 4 for row in range(3))) for offset in range(12)]
    stage.lanes.offer(delivery((table, chunk(stage.partition, made))))
    stage.start()
    unblock = Unblocked(stage, table)
    handled: set[int] = set()
    named: set[int] = set()

    def over() -> bool:
        return stage.checkpoint() == Checkpoint(12)

    def blocked() -> list[int]:
        with stage.lanes.lock:
            kept = list(stage.lanes.schedule.kept.items())
            return [
                list(work.messages())[number][1].offset()
                for each, work in kept
                if each.error is not None
                for number in work.stands_at()
                if number < work.records
            ]

    try:
        while not over():
            stage.wait(lambda: over() or blocked())
            for offset in blocked()[:1]:
                answer = unblock.ask(offset, "dead_letter" if dead else "skip")
                # In row order other rows of the record may wait behind others that are blocked.
                if answer.result == "set_aside":
                    named.add(offset)
                elif answer.result == "handled":
                    handled.add(offset)
    finally:
        stage.stop()
    assert stage.errors == []
    spoiled = {offset for offset, _ in bad}
    assert named <= spoiled
    for offset in range(12):
        own = [index for at, index in handler.applied if at == offset]
        assert len(own) == len(set(own)), "each row once"
        assert by_row or own == sorted(own), "in order"
        assert set(range(3)) - set(own) <= {i for o, i in bad if o == offset}, "only what is bad is missing"
        if offset not in spoiled:
            assert len(own) == 3
    # Of each row of the table, or of the whole table, what came before comes first.
    order: dict[int, list[int]] = {}
    for offset, index in handler.applied:
        order.setdefault(10 * index + offset % 4 if by_row else 0, []).append(offset)
    assert all(offsets == sorted(offsets) for offsets in order.values())
    if dead:
        assert set(letters.sent) == bad
        assert len(letters.sent) == len(bad), "one letter each"


def test_an_order_outlives_a_rebalance_that_takes_another_partition_of_its_batch(start: Start) -> None:
    def handle(batch: Batch) -> None:
        if any((change.partition, change.offset) == (0, 0) for change in batch.changes):
            raise ValueError("no such column")

    stage, other = start(), assignment(1)
    blocked = unit("orders", Scripted(handle), retry=ONCE)
    records = [record(n, partition=1) for n in range(2)]
    chunks = chunk(other, records), chunk(stage.partition, [record(n) for n in range(2)])
    assert stage.lanes.offer(delivery(*((blocked, each) for each in chunks)))
    stage.wait(lambda: blocked.halted)
    kept = stage.lanes.schedule.kept[blocked]
    stage.lanes.trust(0.0)  # no batch begins: the processors have others to do
    (number,) = kept.stands_at()
    order = SetAside("skip", "ann")
    assert set_aside(stage.lanes, blocked, kept, number, order)
    other.closed = True
    stage.lanes.withdraw([blocked], {other}, 0.0)
    stage.lanes.trust(float("inf"))
    stage.wait(lambda: stage.checkpoint() == Checkpoint(2))
    assert order.changes == 1
    assert not blocked.halted
    assert not blocked.orders


def test_an_order_about_a_record_of_a_partition_that_leaves_goes_with_it(start: Start) -> None:
    stage = start()
    blocked = unit("orders", Scripted(), retry=ONCE)
    blocked.orders[stage.partition, 1] = SetAside("skip", "ann")
    blocked.push(chunk(stage.partition, [record(1)]))
    stage.partition.closed = True
    stage.lanes.withdraw([blocked], {stage.partition}, 0.0)
    assert blocked.orders == {}
