"""What a worker loses and gets back while its lanes are full is read on, without help, to the end."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from integration.checkers import NothingLost
from integration.process import WorkerProcess, eventually
from integration.stage import Stage

from worker.local.broker import Broker

SESSION = 2.0
"""Seconds: less than a broker allows by default, so this one is told otherwise."""
PARTITIONS, TABLES = 4, 8

_CLASSIC = {"session.timeout.ms": int(SESSION * 1000), "heartbeat.interval.ms": 300}


@pytest.fixture(scope="module")
def quick_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that soon gives up a member, and that a test may stop and start."""
    overrides = {
        "group.min.session.timeout.ms": "1000",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": str(int(SESSION * 1000)),
        "group.consumer.min.heartbeat.interval.ms": "300",
        "group.consumer.heartbeat.interval.ms": "300",
    }
    with Broker(tmp_path_factory.mktemp("quick"), overrides=overrides) as broker:
        yield broker


class Play:
    """Workers whose handlers wait at a gate, so that their lanes fill up."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.source = stage.source()
        self.gate = stage.gate()

    def send(self, records: int) -> None:
        """So many to each table; each partition has its own tables."""
        for table in range(TABLES):
            self.source.insert(f"t{table}", records=records, partition=table % PARTITIONS)
        self.source.flush()

    def worker(
        self, name: str, properties: dict[str, Any], *, waits: bool, room: int = 10, batch: int = 5
    ) -> WorkerProcess:
        hold = {f"shop.t{table}": str(self.gate) for table in range(TABLES)} if waits else {}
        return self.stage.worker(
            name,
            properties=properties,
            handlers=[self.stage.recording(hold=hold)],
            lanes={"count": 4, "max_records": room},
            batch={"max_records": batch},
            revoke_timeout="300ms",
        )

    def full(self, properties: dict[str, Any]) -> WorkerProcess:
        """A worker that has paused its partitions, as its lanes have no room."""
        self.send(20)
        worker = self.worker("first", properties, waits=True).start()
        eventually(lambda: all(self.paused(worker)), what="the lanes are full")
        return worker

    def paused(self, worker: WorkerProcess) -> list[bool]:
        return [partition["paused"] for partition in worker.status()["partitions"]] or [False]

    def finish(self, worker: WorkerProcess) -> None:
        """All that was sent, before and now, is handled and committed."""
        self.gate.unlink(missing_ok=True)
        self.send(5)
        self.stage.wait_rows(self.source.count, within=120)
        self.stage.wait_committed_to_the_end()
        assert worker.sigterm() == 0
        # Rows that wait at the gate longer than `revoke_timeout` come again before they are let go, so the
        # order of what is recorded says nothing here.
        self.stage.check(NothingLost(self.source.rows))


@pytest.fixture
def play(quick_broker: Broker, tmp_path: Path) -> Iterator[Play]:
    topic = quick_broker.create_topic(f"cdc.{uuid.uuid4().hex[:8]}", PARTITIONS)
    with ExitStack() as stack:
        stage = Stage(quick_broker.bootstrap_servers, topic, PARTITIONS, tmp_path)
        stack.callback(stage.close)
        yield Play(stage)


def test_a_frozen_worker_goes_on_behind_full_lanes(play: Play) -> None:
    worker = play.full(_CLASSIC)
    assert worker.process is not None
    os.kill(worker.process.pid, signal.SIGSTOP)
    time.sleep(2 * SESSION)
    os.kill(worker.process.pid, signal.SIGCONT)
    eventually(lambda: worker.logged("partitions_lost"), what="the group went on without it")
    play.finish(worker)


def test_a_frozen_worker_begins_nothing_of_what_is_anothers_by_then(play: Play) -> None:
    play.send(200)
    first = play.worker("first", _CLASSIC, waits=True, room=1_000, batch=1).start()
    eventually(
        lambda: sum(each["unfinished"] for each in first.status()["partitions"]) == play.source.count,
        what="all of it has been fetched",
    )
    assert first.process is not None
    os.kill(first.process.pid, signal.SIGSTOP)
    second = play.worker("second", _CLASSIC, waits=False).start()
    play.stage.wait_rows(play.source.count)
    before = play.stage.run.mark()
    pid = first.process.pid

    def tables_of_first(kind: str, since: int = 0) -> list[str]:
        events = play.stage.run.events()[since:]
        return sorted(
            each["table"] for each in events if each["event"] == kind and each["worker"].endswith(f":{pid}")
        )

    ran_when_frozen = tables_of_first("start")  # at the gate: none of them ended
    assert ran_when_frozen
    play.gate.unlink()
    os.kill(pid, signal.SIGCONT)
    eventually(lambda: first.logged("partitions_lost"), what="the group went on without it")
    eventually(
        lambda: tables_of_first("end", before) == ran_when_frozen,
        what="what ran when it was frozen ends",
    )
    eventually(
        lambda: not any(each["unfinished"] for each in first.status()["partitions"]),
        what="the rest is neither queued nor running",
    )
    assert not tables_of_first("start", before)
    assert second.sigterm() == 0
    play.finish(first)


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param(_CLASSIC, id="cooperative", marks=pytest.mark.soak),
        pytest.param(
            {**_CLASSIC, "partition.assignment.strategy": "range"}, id="eager", marks=pytest.mark.soak
        ),
        pytest.param({"group.protocol": "consumer"}, id="consumer-protocol"),
    ],
)
def test_what_another_member_had_for_a_while_is_read_on(play: Play, properties: dict[str, Any]) -> None:
    first = play.full(properties)
    second = play.worker("second", properties, waits=False).start()
    eventually(lambda: len(second.status()["partitions"]) == PARTITIONS // 2, what="it has its share")
    play.gate.unlink()
    play.send(5)
    play.stage.wait_rows(play.source.count)
    assert second.sigterm() == 0
    play.finish(first)


def test_a_broker_that_was_away_longer_than_the_session_costs_nothing(
    play: Play, quick_broker: Broker
) -> None:
    # If the worker does not join again, its log shows in which state the client waits.
    worker = play.full({**_CLASSIC, "debug": "cgrp"})
    quick_broker.stop()
    eventually(lambda: worker.logged("partitions_lost"), what="the session is over")
    assert worker.healthy()
    quick_broker.start()
    play.finish(worker)
