"""The checkpoint folder cannot be written: Kafka still gets every commit, and people are told."""

from __future__ import annotations

from pathlib import Path

from integration.checkers import NothingLost, NothingTwice
from integration.process import eventually
from integration.stage import Stage


def test_commits_to_kafka_go_on_when_the_folder_cannot_be_written(stage: Stage) -> None:
    source = stage.source()
    source.insert("t0", records=10)
    source.flush()
    worker = stage.worker().start()
    stage.wait_committed_to_the_end()
    # A file in place of the folder: not even root can write into that.
    folder = Path(worker.config["checkpoint"]["directory"])
    folder.rename(folder.with_name("moved"))
    folder.touch()

    source.insert("t0", records=10)
    source.flush()
    stage.wait_rows(20)
    stage.wait_committed_to_the_end()
    error = eventually(lambda: worker.status()["checkpoint"]["last_error"])
    assert str(folder) in error
    failed = eventually(lambda: worker.metric("binlane_commits_total", store="file", result="failure"))
    assert failed >= 1
    assert worker.metric("binlane_commits_total", store="kafka", result="failure") == 0
    assert [line for line in worker.log_lines() if line.get("level") == "error" and str(folder) in str(line)]
    assert worker.healthy()

    # And it is written again when it can be.
    folder.unlink()
    folder.with_name("moved").rename(folder)
    source.insert("t0", records=10)
    source.flush()
    stage.wait_committed_to_the_end()
    eventually(lambda: worker.status()["checkpoint"]["last_error"] is None)
    assert worker.sigterm() == 0
    stage.check(NothingLost(source.rows), NothingTwice())


def test_a_start_without_a_folder_that_can_be_written_goes_by_kafka(stage: Stage) -> None:
    source = stage.source()
    source.insert("t0", records=10)
    source.flush()
    # Nobody can make a folder there, root neither.
    nowhere = "/proc/binlane-state"
    only_kafka = {"interval": "200ms", "directory": nowhere}
    worker = stage.worker(checkpoint=only_kafka, properties={"group.instance.id": "the-only-one"}).start()

    stage.wait_committed_to_the_end()
    assert [line for line in worker.log_lines() if line.get("level") == "error" and nowhere in str(line)]
    worker.kill9()
    source.insert("t0", records=10)
    source.flush()
    worker.start()
    stage.wait_rows(20)
    stage.wait_committed_to_the_end()
    stage.check(NothingLost(source.rows), NothingTwice())


def test_a_checkpoint_that_cannot_be_read_stops_the_start_and_is_told(stage: Stage) -> None:
    worker = stage.worker()
    folder = Path(worker.config["checkpoint"]["directory"])
    folder.touch()

    assert worker.start(ready=False).wait() == 1
    assert [line for line in worker.log_lines() if line.get("level") == "error" and str(folder) in str(line)]
    assert "Traceback" not in worker.log_text()
    assert stage.run.rows() == []
