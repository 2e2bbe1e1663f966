"""One record that holds up its partition: it is told, and what runs ahead of it is bounded."""

from __future__ import annotations

from typing import Any

from integration.checkers import NothingLost, NothingTwice, TableOrder
from integration.process import eventually
from integration.stage import Stage

from worker.fetching.polls import MOST_RECORDS

MAX_AHEAD = 3_000
RECORDS = 40_000


def test_a_partition_is_read_so_far_beyond_a_stuck_record_and_on_when_that_moves(stage: Stage) -> None:
    source, gate = stage.source(), stage.gate()
    source.insert("t0")
    for table in range(1, 5):
        source.insert(f"t{table}", records=RECORDS // 4)
    source.flush()
    worker = stage.worker(
        handlers=[stage.recording(hold={"shop.t0": str(gate)})],
        batch={"max_records": 500},
        max_ahead=MAX_AHEAD,
        stuck_after="1s",
    ).start()

    def partition() -> dict[str, Any]:
        [found] = worker.status()["partitions"]
        return dict(found)

    eventually(lambda: partition()["paused_by"] == "max_ahead", what="the partition is paused")
    # What had been read is handled; the record itself is all that is left.
    eventually(lambda: partition()["unfinished"] == 1, what="the others are done")
    told = eventually(lambda: partition()["stuck"], what="it is told")
    assert (told["offset"], told["table"], told["state"], told["handler"]) == (
        0,
        "shop.t0",
        "running",
        "recording:Recording",
    )
    assert "_wait_or_fail" in told["stack"]
    now = partition()
    assert MAX_AHEAD <= now["ahead"] == now["finished_ahead"] + 1 <= MAX_AHEAD + MOST_RECORDS
    assert now["position"] < RECORDS
    assert now["committed"] in (None, 0)
    assert now["standstill_seconds"] == 0
    assert worker.metric("binlane_max_ahead_reached") == 1
    assert worker.metric("binlane_head_stuck_seconds") >= 1
    assert worker.healthy(), "a handler that takes long is no fault of the worker"
    [paused] = worker.logged("max_ahead_reached")
    assert paused["first_unfinished"] == 0
    assert worker.logged("head_stuck")[0]["table"] == "shop.t0"
    gate.unlink()
    stage.wait_rows(RECORDS + 1)
    stage.wait_committed_to_the_end()
    eventually(lambda: not worker.metric("binlane_head_stuck_seconds"), what="nothing is stuck any more")
    assert partition()["paused_by"] is None
    assert worker.sigterm() == 0
    stage.check(NothingLost(source.rows), NothingTwice(), TableOrder())
