"""How long nothing is handled after a pod was lost, and what is repeated: docs/deployment.md."""

from __future__ import annotations

import shutil
import time
from collections import Counter

import pytest
from integration.conftest import MakeStage
from integration.stage import Stage

pytestmark = pytest.mark.soak

SESSION = {"session.timeout.ms": 45_000, "heartbeat.interval.ms": 3_000}
"""The default."""


def seconds_until(stage: Stage, rows: int, *, since: float) -> float:
    stage.wait_rows(rows, within=120)
    return time.monotonic() - since


def test_another_worker_handles_what_a_lost_one_left_after_its_session(make_stage: MakeStage) -> None:
    stage = make_stage(partitions=2)
    one, other = (stage.worker(name, properties=SESSION).start() for name in ("one", "other"))
    source = stage.source()
    for table in range(20):
        source.insert(f"t{table}")
    source.flush()
    stage.wait_rows(20)
    one.kill9()
    killed = time.monotonic()
    for table in range(20):
        source.insert(f"t{table}")
    source.flush()
    taken = seconds_until(stage, 40, since=killed)
    print(f"another worker after {taken:.1f} s")
    assert 30 < taken < 60
    assert other.sigterm() == 0


@pytest.mark.parametrize("lost", ["container", "node"])
def test_a_worker_alone_waits_for_the_session_of_the_lost_one(make_stage: MakeStage, lost: str) -> None:
    """A node takes the folder with the checkpoints with it. Neither repeats what was finished ahead."""
    stage = make_stage()
    gate = stage.gate()
    recording = stage.recording(hold={"shop.held": str(gate)})
    worker = stage.worker(properties=SESSION, handlers=[recording]).start()
    source = stage.source()
    source.insert("held")
    for _ in range(1000):
        source.insert("t0")
    source.flush()
    stage.wait_rows(1000)
    time.sleep(2)  # a commit, every 0.2 s here
    worker.kill9()
    killed = time.monotonic()
    if lost == "node":
        shutil.rmtree(stage.folder / "worker" / "state")
    gate.unlink()
    worker.start(ready=False)
    taken = seconds_until(stage, 1001, since=killed)
    repeated = sum(count - 1 for count in Counter(event["offset"] for event in stage.run.rows()).values())
    print(f"{lost}: a worker alone after {taken:.1f} s, {repeated} rows repeated")
    assert 30 < taken < 60
    assert repeated == 0
    assert worker.sigterm() == 0
