"""The first unfinished record of a partition that stays the first is told: where it is, and what keeps it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from building import Clock, Scripted, assignment, chunk, ddl, delivery, record, unit
from processing import NOW, Stage, raising
from row_building import in_partition, row_unit, rows
from structlog.testing import capture_logs

from handlers import Batch, TargetUnavailable
from worker.observing.status import StuckStatus
from worker.stuck.stuck_heads import StuckHeads, UnfinishedRecords
from worker.units.assigned_partition import Assignment, Assignments
from worker.units.chunk import Chunk
from worker.units.unit import Unit, UnitState


class Watch:
    """The heads of a stage's partition, with a clock of their own."""

    def __init__(self, stage: Stage, *units: Unit, partitions: Sequence[Assignment] = ()) -> None:
        self.clock = Clock()
        self.partition = stage.partition
        self.held: list[tuple[Unit, Chunk]] = []
        assignments = Assignments()
        assignments.add(partitions or [stage.partition])
        records = UnfinishedRecords(
            assignments,
            stage.lanes,
            stage.calls,
            units=lambda: units,
            held=lambda: self.held,
            clock=self.clock,
        )
        self.heads = StuckHeads(records, 60.0)
        self.heads.look()

    def wait(self, seconds: int = 61) -> list[Any]:
        """What is logged meanwhile."""
        with capture_logs() as logs:
            for _ in range(seconds):
                self.clock.now += 1
                self.heads.look()
        return [line for line in logs if line["log_level"] != "debug"]

    def told(self) -> StuckStatus:
        found = self.heads.of(self.partition)
        assert found is not None
        return found


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage(2)
    made.start()
    yield made
    made.stop()


def test_a_handler_that_hangs_is_told_with_table_lane_time_and_stack(stage: Stage) -> None:
    go_on, inside = threading.Event(), threading.Event()

    def hangs_in_the_target(batch: Batch) -> None:
        inside.set()
        go_on.wait(30)

    orders, customers = unit("orders", Scripted(hangs_in_the_target)), unit("customers")
    stage.offer((orders, [0, 1]), (customers, [2, 3]))
    assert inside.wait(10)
    stage.wait(lambda: customers.at_rest)
    watch = Watch(stage, orders, customers)
    assert watch.wait(59) == []
    assert watch.heads.of(stage.partition) is None
    [log] = watch.wait(59)
    assert (log["event"], log["log_level"], log["offset"]) == ("head_stuck", "warning", 0)
    assert (log["table"], log["state"], log["handler"], log["seconds"]) == (
        "shop.orders",
        "running",
        "h0",
        60,
    )
    assert log["records_behind"] == 4
    assert "hangs_in_the_target" in log["stack_of_handler"]
    told = watch.told()
    assert (told.table, told.state, told.handler, told.seconds) == ("shop.orders", "running", "h0", 118)
    assert stage.lanes.lanes[told.lane or 0].running is not None
    # Again at every doubling.
    assert [line["seconds"] for line in watch.wait(200)] == [120, 240]
    go_on.set()
    stage.wait(lambda: orders.at_rest)
    assert [line["event"] for line in watch.wait(1)] == ["head_moved"]
    assert watch.heads.of(stage.partition) is None
    assert watch.heads.reason is None


def test_a_head_that_moves_is_not_stuck_however_long_there_is_one(stage: Stage) -> None:
    orders = unit("orders", Scripted(raising(ValueError("no"))), retry={"max_attempts": 1})
    stage.offer((orders, range(100)))
    stage.wait(lambda: orders.state is UnitState.HALTED)
    watch = Watch(stage, orders)
    for offset in range(99):
        stage.partition.tracker.finish([offset])
        assert watch.wait(30) == []


def test_a_halted_table_is_told_with_its_error(stage: Stage) -> None:
    orders = unit("orders", Scripted(raising(ValueError("no such column"))), retry={"max_attempts": 1})
    stage.offer((orders, [0, 1]))
    stage.wait(lambda: orders.state is UnitState.HALTED)
    watch = Watch(stage, orders)
    [log] = watch.wait()
    assert (log["state"], log["offset"], log["handler"]) == ("halted", 0, None)
    assert "no such column" in log["error"]
    assert "binlane unblock" in log["hint"]


def test_a_table_that_waits_for_its_target_is_told_with_the_reason(stage: Stage) -> None:
    slow = {"initial_delay": 1000.0, "max_delay": 1000.0, "jitter": 0.0}
    orders = unit("orders", Scripted(raising(TargetUnavailable("not today"))), retry=slow)
    stage.offer((orders, [0]))
    stage.wait(lambda: orders.state is UnitState.BACKOFF)
    [log] = Watch(stage, orders).wait()
    assert (log["state"], log["table"]) == ("retrying", "shop.orders")
    assert "not today" in log["error"]


def test_a_record_that_waits_for_a_commit_to_be_taken_is_told_so(stage: Stage) -> None:
    stage.lanes.trust(0.0)
    orders = unit("orders")
    stage.offer((orders, [0]))
    [log] = Watch(stage, orders).wait()
    assert (log["state"], log["table"]) == ("waiting for the group", "shop.orders")
    assert "membership_unconfirmed" in log["hint"]


def test_what_the_lanes_have_no_room_for_is_told_with_its_table(stage: Stage) -> None:
    orders = unit("orders")
    watch = Watch(stage, orders)
    watch.held.append((orders, chunk(stage.partition, [record(0)])))
    [log] = watch.wait()
    assert (log["state"], log["table"]) == ("waiting for room", "shop.orders")


def test_a_record_that_no_thread_has_fails_health(stage: Stage) -> None:
    stage.partition.tracker.register([0, 1])  # and nobody was given them
    watch = Watch(stage, unit("orders"))
    [log] = watch.wait(110)
    assert (log["state"], log["table"]) == ("nowhere", None)
    assert "restart" in log["hint"]
    assert watch.heads.reason is None
    watch.wait(20)
    assert watch.heads.reason is not None
    assert "cdc.shop[0] offset 0" in watch.heads.reason
    stage.partition.tracker.finish([0, 1])
    watch.wait(1)
    assert watch.heads.reason is None


def test_a_partition_that_leaves_is_not_looked_at(stage: Stage) -> None:
    stage.partition.tracker.register([0])
    stage.partition.closed = True
    watch = Watch(stage, unit("orders"))
    assert watch.wait(500) == []
    assert watch.heads.reason is None


def test_a_process_that_was_stopped_for_an_hour_tells_of_nothing(stage: Stage) -> None:
    stage.partition.tracker.register([0])
    watch = Watch(stage, unit("orders"))
    watch.clock.now += 3600
    assert watch.wait(20) == []
    assert watch.wait(40) != []
    assert watch.heads.reason is None


def test_a_record_that_is_done_and_waits_for_rows_of_another_is_told_with_that_one(stage: Stage) -> None:
    """In row order a row that comes behind one of a record of several rows counts only with that record."""

    def refuse(batch: Batch) -> None:
        if any(change.partition == 0 and change.index == 1 for change in batch.changes):
            raise ValueError("no")

    table = row_unit("orders", Scripted(refuse), retry={"max_attempts": 1, **NOW})
    first, second = stage.partition, assignment(1)
    one, other = rows(0, *range(10, 40)), in_partition(rows(0, 10), 1)  # in many shards
    stage.lanes.offer(delivery((table, chunk(first, [one])), (table, chunk(second, [other]))))
    stage.wait(lambda: any(each.state is UnitState.HALTED for each in table.members()))
    stage.wait(lambda: table.shards is not None and table.shards.order.held_by(second, 0) is not None)
    watch = Watch(stage, table, partitions=[first, second])
    logs = {line["partition"]: line for line in watch.wait()}
    assert (logs["cdc.shop[0]"]["state"], logs["cdc.shop[0]"]["table"]) == ("halted", "shop.orders")
    held = logs["cdc.shop[1]"]
    assert (held["state"], held["table"]) == ("held back", "shop.orders")
    assert held["held_by"] == "cdc.shop[0] offset 0"


def test_a_statement_that_waits_for_a_blocked_row_is_told_to_wait_for_others(stage: Stage) -> None:
    table = row_unit("orders", Scripted(raising(ValueError("no"))), retry={"max_attempts": 1, **NOW})
    other = assignment(1)
    stage.lanes.offer(
        delivery(
            (table, chunk(stage.partition, [rows(0, 10)])),
            (table, chunk(other, [ddl(0, partition=1)], alone=True)),
        )
    )
    stage.wait(lambda: table.state is UnitState.WAITING_FOR_OTHERS)
    stage.wait(lambda: any(each.state is UnitState.HALTED for each in table.members()))
    watch = Watch(stage, table, partitions=[other])
    [log] = watch.wait()
    assert (log["state"], log["table"]) == ("waiting for others", "shop.orders")
