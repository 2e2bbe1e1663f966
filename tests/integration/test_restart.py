"""What comes again after a crash, and what does not."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from integration.checkers import (
    NeverTwoAtOnce,
    NothingLost,
    NothingTwice,
    NothingTwiceButWhatRan,
    TableOrder,
)
from integration.conftest import MakeStage
from integration.load import SLOW, Load
from integration.process import eventually
from integration.stage import Stage

from offsets import metadata
from offsets.types import OffsetRange

STATIC = {"group.instance.id": "the-only-one"}
"""A member that was killed is replaced at once by one of the same name, without its session running out."""


@pytest.mark.parametrize("local_file", ["kept", "gone"])
def test_a_restart_repeats_exactly_the_unfinished_records_behind_a_gap(stage: Stage, local_file: str) -> None:
    failing = stage.gate()
    handler = stage.recording(fail={"shop.t2": [0], "shop.t4": [0]}, fail_while=str(failing))
    table = {"match": "*", "handlers": [handler], "retry": {"max_attempts": None, "initial_delay": "50ms"}}
    source = stage.source()
    for number in range(6):
        source.insert(f"t{number}")  # offset = number of the table
    source.flush()
    worker = stage.worker(tables=[table], properties=STATIC).start()

    ahead = (OffsetRange(3, 4), OffsetRange(5, 6))

    def remembered() -> bool:
        known = metadata.decode(stage.committed_metadata()[0], 2)
        return stage.committed()[0] == 2 and known is not None and known.ahead == ahead

    eventually(remembered, what="committed 2, and 3 and 5 finished ahead")
    status = worker.status()["partitions"][0]
    assert (status["committed"], status["unfinished"], status["finished_ahead"]) == (2, 2, 2)
    worker.kill9()
    assert stage.committed() == {0: 2}
    if local_file == "gone":
        shutil.rmtree(worker.config["checkpoint"]["directory"])
    before = stage.run.mark()
    failing.unlink()

    worker.start()
    stage.wait_committed_to_the_end()
    assert worker.sigterm() == 0

    again = [event["table"] for event in stage.run.events()[before:] if event["event"] == "start"]
    assert sorted(again) == ["shop.t2", "shop.t4"]
    stage.check(NothingLost(source.rows), NothingTwice())


@pytest.mark.soak
def test_four_kills_under_load_lose_nothing_and_keep_the_order(make_stage: MakeStage) -> None:
    stage = make_stage(partitions=4)
    source = stage.source()
    worker = stage.worker(handlers=[stage.recording(row_sleep=0.001, slow=SLOW)], properties=STATIC)
    with Load(source, tables=40):
        for _ in range(4):
            handled = stage.run.handled()
            worker.start()
            stage.wait_rows(handled + 500)
            worker.kill9()
    worker.start()
    stage.wait_rows(source.count, within=90)
    stage.wait_committed_to_the_end()

    assert worker.sigterm() == 0
    assert source.count > 2_000
    stage.check(NothingLost(source.rows), TableOrder(), NeverTwoAtOnce())


def test_a_member_without_a_fixed_name_is_replaced_when_its_session_has_run_out(stage: Stage) -> None:
    source = stage.source()
    source.insert("t0", records=20)
    source.flush()
    first = stage.worker("first").start()
    stage.wait_committed_to_the_end()
    first.kill9()
    source.insert("t0", records=20)
    source.flush()

    stage.worker("second").start()
    stage.wait_rows(40)
    stage.wait_committed_to_the_end()
    stage.check(NothingLost(source.rows), TableOrder(), NothingTwice(), NeverTwoAtOnce())


def test_a_static_member_takes_its_partitions_up_again_within_its_session(stage: Stage) -> None:
    source = stage.source()
    source.insert("t0", records=20)
    source.flush()
    worker = stage.worker(properties={**STATIC, "session.timeout.ms": 45000}).start()
    stage.wait_committed_to_the_end()
    worker.kill9()
    source.insert("t0", records=20)
    source.flush()

    begin = time.monotonic()
    worker.start()
    stage.wait_rows(40)
    assert time.monotonic() - begin < 20, "it waited for the session of the one that was killed"
    stage.wait_committed_to_the_end()
    stage.check(NothingLost(source.rows), TableOrder(), NothingTwice())


def test_a_damaged_checkpoint_file_is_loud_and_loses_nothing(stage: Stage) -> None:
    source = stage.source()
    source.insert("t0", records=20)
    source.flush()
    worker = stage.worker().start()
    stage.wait_committed_to_the_end()
    assert worker.sigterm() == 0
    folder = Path(worker.config["checkpoint"]["directory"])
    damaged = [path for path in folder.rglob("*") if path.is_file()]
    assert damaged, "there is a local checkpoint file"
    for path in damaged:
        path.write_bytes(path.read_bytes()[:-7] + b"garbage")
    source.insert("t0", records=20)
    source.flush()

    worker.start()
    stage.wait_rows(40)
    stage.wait_committed_to_the_end()
    loud = [line for line in worker.log_lines() if line.get("level") in ("warning", "error")]
    assert any(str(folder) in str(line) for line in loud), loud
    stage.check(NothingLost(source.rows), TableOrder(), NothingTwice())


def test_a_kill_repeats_nothing_but_what_was_in_a_running_batch(make_stage: MakeStage) -> None:
    """Though checkpoints are seconds apart."""
    stage = make_stage(partitions=4)
    source = stage.source()
    rare = {"interval": "5s", "directory": str(stage.folder / "state")}
    worker = stage.worker(
        handlers=[stage.recording(row_sleep=0.001, slow=SLOW)],
        properties=STATIC,
        batch={"max_records": 20},
        checkpoint=rare,
    )
    with Load(source, tables=40):
        for _ in range(5):
            handled = stage.run.handled()
            worker.start()
            stage.wait_rows(handled + 500)
            worker.kill9()
    worker.start()
    stage.wait_rows(source.count, within=90)
    stage.wait_committed_to_the_end()

    assert worker.sigterm() == 0
    assert source.count > 2_500
    stage.check(NothingLost(source.rows), TableOrder(), NeverTwoAtOnce(), NothingTwiceButWhatRan())
    assert not list((stage.folder / "state").glob("finished-*")), "a clean end leaves no map"
