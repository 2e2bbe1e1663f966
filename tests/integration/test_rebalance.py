"""Members come and go: nothing is lost, no two of them are ever inside the same table."""

from __future__ import annotations

from typing import Any

import pytest
from integration.checkers import NeverTwoAtOnce, NothingLost, NothingTwice, TableOrder
from integration.conftest import MakeStage
from integration.load import SLOW, Load
from integration.process import WorkerProcess, eventually

pytestmark = pytest.mark.long


def partitions_of(worker: WorkerProcess) -> set[int]:
    return {partition["partition"] for partition in worker.status()["partitions"]}


def test_three_workers_restarted_in_turn_are_never_two_inside_a_table(make_stage: MakeStage) -> None:
    stage = make_stage(partitions=6)
    source = stage.source()
    handlers = [stage.recording(row_sleep=0.002, slow=SLOW)]
    with Load(source, tables=30):
        workers = [stage.worker(f"worker-{number}", handlers=handlers).start() for number in range(3)]
        eventually(lambda: all(len(partitions_of(worker)) == 2 for worker in workers))
        for worker in workers:
            handled = stage.run.handled()
            assert worker.sigterm() == 0
            stage.wait_rows(handled + 200)
            worker.start()
            eventually(lambda: all(len(partitions_of(worker)) == 2 for worker in workers))
    stage.wait_rows(source.count)
    stage.wait_committed_to_the_end()

    assert [worker.sigterm() for worker in workers] == [0, 0, 0]
    stage.check(NothingLost(source.rows), TableOrder(), NeverTwoAtOnce(), NothingTwice())


def test_a_member_without_partitions_that_stops_leaves_the_group_at_once(make_stage: MakeStage) -> None:
    """Else what the others leave behind belongs to it until its session is over."""
    stage = make_stage(partitions=1)
    workers = [stage.worker(name).start() for name in ("first", "second")]
    eventually(lambda: sorted(len(partitions_of(worker)) for worker in workers) == [0, 1])
    idle, busy = sorted(workers, key=lambda worker: len(partitions_of(worker)))
    assert idle.sigterm() == 0
    assert stage.members() == 1
    assert busy.sigterm() == 0
    assert stage.members() == 0


def test_a_member_that_joins_sees_nothing_again_that_was_finished(make_stage: MakeStage) -> None:
    stage = make_stage(partitions=2)
    source = stage.source()
    for table in range(20):
        source.insert(f"t{table}", records=20)
    source.flush()
    never = {"interval": "1h"}
    first = stage.worker("first", checkpoint={**never, "directory": str(stage.folder / "a")}).start()
    stage.wait_rows(source.count)
    begun = set(stage.committed().values())
    assert begun == {0}, "only where they began is committed before a partition leaves"

    second = stage.worker("second", checkpoint={**never, "directory": str(stage.folder / "b")}).start()
    eventually(lambda: len(partitions_of(first)) == len(partitions_of(second)) == 1)
    for table in range(20):
        source.insert(f"t{table}", records=5)
    source.flush()
    stage.wait_rows(source.count)

    assert [first.sigterm(), second.sigterm()] == [0, 0]
    assert stage.committed() == stage.ends()
    stage.check(NothingLost(source.rows), TableOrder(), NothingTwice(), NeverTwoAtOnce())


# test_full_lanes.py moves partitions back and forth in these ways, too.
@pytest.mark.soak
@pytest.mark.parametrize(
    "properties",
    [
        pytest.param({"partition.assignment.strategy": "range"}, id="eager"),
        pytest.param({"group.protocol": "consumer"}, id="consumer-protocol"),
    ],
)
def test_other_ways_to_share_partitions_keep_the_promises(
    make_stage: MakeStage, properties: dict[str, Any]
) -> None:
    stage = make_stage(partitions=4)
    source = stage.source()
    handlers = [stage.recording(row_sleep=0.001, slow=SLOW)]
    with Load(source, tables=20):
        first = stage.worker("first", handlers=handlers, properties=properties).start()
        stage.wait_rows(200)
        second = stage.worker("second", handlers=handlers, properties=properties).start()
        eventually(lambda: len(partitions_of(first)) == len(partitions_of(second)) == 2)
        handled = stage.run.handled()
        stage.wait_rows(handled + 200)
        assert first.sigterm() == 0
        eventually(lambda: len(partitions_of(second)) == 4)
    stage.wait_rows(source.count)
    stage.wait_committed_to_the_end()

    assert second.sigterm() == 0
    stage.check(NothingLost(source.rows), TableOrder(), NothingTwice(), NeverTwoAtOnce())


def test_a_handler_that_returns_after_its_partition_left_changes_nothing(make_stage: MakeStage) -> None:
    stage = make_stage(partitions=2)
    source = stage.source()
    source.insert("t0", records=3, partition=0)
    source.insert("t1", records=3, partition=1)
    source.flush()
    hold = stage.gate()
    hanging = stage.recording(
        hold={"shop.t0": str(hold), "shop.t1": str(hold)}, hold_rows={"shop.t0": [1], "shop.t1": [1]}
    )
    first = stage.worker("first", handlers=[hanging], revoke_timeout="500ms", batch={"max_records": 1})
    first.start()
    eventually(lambda: stage.committed() == {0: 1, 1: 1}, what="both tables hang in their second row")

    second = stage.worker("second").start()
    eventually(lambda: partitions_of(second), what="a partition left the worker that hangs")
    (moved,) = partitions_of(second)
    eventually(lambda: stage.committed()[moved] == 3, what="the new owner finished the partition")
    assert [row["seq"] for row in stage.run.rows() if row["worker"] == second.identity] == [1, 2]

    hold.unlink()
    stage.wait_committed_to_the_end()
    source.insert("t0", records=2, partition=0)
    source.insert("t1", records=2, partition=1)
    source.flush()
    stage.wait_committed_to_the_end()

    late = [row for row in stage.run.rows() if row["worker"] == first.identity and row["partition"] == moved]
    assert [row["seq"] for row in late] == [0, 1], "its late row is the last it did of that partition"
    assert first.healthy()
    assert [first.sigterm(), second.sigterm()] == [0, 0]
    assert stage.committed() == {0: 5, 1: 5}
    stage.check(NothingLost(source.rows))


@pytest.mark.soak
def test_a_slow_handler_and_tiny_bounds_do_not_cost_the_membership(make_stage: MakeStage) -> None:
    stage = make_stage()
    source = stage.source()
    source.insert("t0", records=40)
    source.insert("t1", records=40)
    source.flush()
    hold = stage.gate()
    worker = stage.worker(
        handlers=[stage.recording(hold={"shop.t0": str(hold)}, hold_rows={"shop.t0": [2]})],
        lanes={"count": 2, "max_records": 5, "max_bytes": "8KiB"},
        batch={"max_records": 2},
        # The broker's least session timeout; without a poll for so long the group throws a member out.
        properties={"max.poll.interval.ms": 6000, "session.timeout.ms": 6000},
        revoke_timeout="500ms",
    ).start()
    eventually(
        lambda: worker.metric("binlane_partition_paused", topic=stage.topic, partition="0") == 1,
        what="the bounds pause the partition",
    )
    rebalances = worker.metric("binlane_rebalances_total")
    held_for = 8.0
    eventually(lambda: worker.status()["lanes"] and running_seconds(worker) > held_for, within=20)
    assert worker.ready()
    assert worker.healthy()

    hold.unlink()
    stage.wait_rows(source.count)
    stage.wait_committed_to_the_end()
    assert worker.metric("binlane_rebalances_total") == rebalances
    assert worker.metric("binlane_backpressure_seconds_total") > held_for / 2
    assert worker.metric("binlane_partition_paused", topic=stage.topic, partition="0") == 0
    assert worker.sigterm() == 0
    stage.check(NothingLost(source.rows), TableOrder(), NothingTwice())


def running_seconds(worker: WorkerProcess) -> float:
    return max(lane["running_seconds"] or 0.0 for lane in worker.status()["lanes"])
