"""`binlane unblock` on a running worker and a real broker."""

from __future__ import annotations

import shlex
import socket
from typing import Any

import plain_http
from integration.checkers import NothingLost
from integration.letters import binlane, letters, listed, with_dead_letters
from integration.process import WorkerProcess, eventually
from integration.stage import Stage

from worker.dead_letters.topic import read_letter
from worker.local.broker import Broker

BAD = 3
"""Both the row of t0 that is refused and the offset of its record."""


def blocked(worker: WorkerProcess, state: str = "blocked") -> None:
    eventually(lambda: worker.table("shop.t0").get("state") == state, what="the table stands still")


def applied(stage: Stage) -> list[int]:
    """The rows of t0 in the order in which they were handled."""
    return [row["seq"] for row in stage.run.rows() if row["table"] == "shop.t0"]


def unblock(worker: WorkerProcess, offset: int, action: str, *more: str) -> Any:
    assert worker.url is not None
    where = ("--table", "shop.t0", "--offset", str(offset))
    return binlane(worker, "unblock", worker.url, *where, action, *more)


def test_a_blocked_table_goes_on_and_kill_9_does_not_bring_the_record_back(stage: Stage) -> None:
    source = stage.source()
    source.insert("t0", records=10)
    source.insert("t1", records=2_000)
    source.flush()
    worker = stage.worker(
        tables=[
            {
                "match": "*",
                "handlers": [stage.recording(fail={"shop.t0": [BAD]}, partial=True)],
                "retry": {"max_attempts": 2, "initial_delay": "10ms"},
            }
        ],
        max_ahead=500,
        # Nothing is saved by itself: what comes back was not saved by the command.
        checkpoint={"interval": "10m", "directory": str(stage.folder / "state")},
    ).start()
    blocked(worker)
    eventually(
        lambda: worker.status()["partitions"][0]["paused_by"] == "max_ahead", what="the partition is paused"
    )
    wrong = unblock(worker, BAD + 1, "--skip")
    assert wrong.returncode == 1
    assert "is not what blocks shop.t0: that is blocked at" in wrong.stderr
    assert worker.url is not None
    page = plain_http.get(f"{worker.url}/api/live", timeout=20).json()
    [trouble] = [each for each in page["troubles"] if each["table"] == "shop.t0"]
    assert trouble["what"].startswith(f"shop.t0 is blocked at {stage.topic}[0] offset {BAD}")
    words = shlex.split(trouble["commands"][-1])
    # The command that the page proposes does it; with port 0 a URL stands in for the file.
    done = binlane(worker, words[1], worker.url, *words[3:])
    assert done.returncode == 0, done.stderr
    hour = plain_http.get(f"{worker.url}/api/history", timeout=20).json()
    assert hour["points"][0][hour["fields"].index("time")] > 0
    happened = [each["event"] for each in hour["entries"]]
    assert happened[0] == "worker started"
    assert {"partition assigned", "table halted", "unblock refused", "unblock answered"} < set(happened)
    assert f"{stage.topic}[0] offset {BAD} is set aside: skipped" in done.stdout
    [ordered] = worker.logged("unblock_ordered")
    assert "@" in ordered["by"]
    assert ordered["client"] == "127.0.0.1"
    assert worker.metric("binlane_unblocked_records_total", action="skip") == 1
    again = unblock(worker, BAD, "--skip")
    assert (again.returncode, "is not unfinished" in again.stderr) == (1, True)
    assert stage.committed()[0] > BAD
    stage.wait_rows(2_009)
    worker.kill9()
    # The record is not even refused again: it does not come.
    worker.start()
    stage.wait_rows(2_009)
    source.insert("t0", records=5)
    source.flush()
    stage.wait_rows(2_014)
    assert worker.table("shop.t0")["failed_batches"] == 0
    assert worker.sigterm() == 0
    stage.wait_committed_to_the_end()
    left = {**source.rows, "shop.t0": [seq for seq in source.rows["shop.t0"] if seq != BAD]}
    stage.check(NothingLost(left))
    assert applied(stage)[:BAD] == list(range(BAD)), "what came before it does not come again"
    assert min(applied(stage)[BAD:]) > BAD


def test_a_batch_that_is_tried_for_ever_gives_its_record_to_the_dead_letters(
    stage: Stage, broker: Broker
) -> None:
    broker.create_topic(f"{stage.topic}.dead")
    source = stage.source()
    source.insert("t0", records=10)
    source.flush()
    worker = stage.worker(
        tables=[
            {
                "match": "*",
                "handlers": [stage.recording(fail={"shop.t0": [BAD]}, partial=True)],
                "retry": {"max_attempts": None, "initial_delay": "50ms", "max_delay": "100ms"},
            }
        ],
        dead_letter=with_dead_letters(stage, max_ratio=0.0001),  # none at all, but for those that are ordered
    ).start()
    stage.wait_rows(BAD)
    done = unblock(worker, BAD, "--dead-letter", "--partition", "0", "--topic", stage.topic)
    assert done.returncode == 0, done.stderr
    assert "is set aside: written to" in done.stdout
    stage.wait_rows(9)
    stage.wait_committed_to_the_end()
    [message] = letters(stage)
    letter = read_letter(message)  # type: ignore[arg-type]
    assert letter.stood_at == (stage.topic, 0, BAD)
    assert (letter.table, letter.handler, letter.index) == ("shop.t0", "recording:Recording", 0)
    assert letter.error is not None
    assert letter.error.startswith(f"RuntimeError: row {BAD} of shop.t0 is refused (set aside by ")
    assert [each["table"] for each in listed(worker)] == ["shop.t0"]
    assert worker.sigterm() == 0
    assert applied(stage) == [seq for seq in range(10) if seq != BAD]


def test_a_stopped_worker_is_told_of_with_what_to_do(stage: Stage) -> None:
    worker = stage.worker(http={"host": "127.0.0.1", "port": 1})
    worker.start(ready=False).terminate()
    worker.wait()
    told = binlane(
        worker, "unblock", "CONFIG", "--table", "shop.t0", "--offset", "3", "--skip", "--partition", "0"
    )
    assert told.returncode == 1
    assert "no answer from http://127.0.0.1:1" in told.stderr
    assert "--topic TOPIC --partition 0 --offset 4" in told.stderr


def test_a_second_start_beside_a_worker_leaves_it_its_orders(stage: Stage) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    worker = stage.worker(http={"host": "127.0.0.1", "port": port}).start()
    token = worker.order_token
    second = binlane(worker, "run", "CONFIG")
    assert (second.returncode, worker.order_token) == (1, token)
    assert worker.sigterm() == 0
