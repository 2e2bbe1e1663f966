"""Child processes that are killed, stopped and crash at any time, in whole runs."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml
from integration.checkers import NeverTwoAtOnce, NothingLost, NothingTwiceButWhatRan, TableOrder
from integration.conftest import MakeStage
from integration.letters import letters, with_dead_letters
from integration.process import WorkerProcess, eventually
from integration.source import canal_insert
from integration.stage import Stage
from integration.test_process_runs import PROCESSES
from integration.test_process_runs import children as told_children
from servers.postgres_server import PostgresServer

from worker.local.broker import Broker


def children(worker: WorkerProcess) -> list[int]:
    while True:
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread of it has ended meanwhile
            return told_children(worker)


def kill_at_random(
    stage: Stage, worker: WorkerProcess, draw: random.Random, progress: Callable[[], int], total: int
) -> None:
    """Kill one of the processes six times, or all of them, each time after some progress."""
    for _ in range(6):
        target = min(total, progress() + draw.randint(1, total // 10))
        eventually(lambda target=target: progress() >= target, within=90, every=0.01)
        time.sleep(draw.uniform(0.0, 0.1))
        alive = eventually(lambda: children(worker), every=0.01)  # all may be being started
        for victim in alive if draw.random() < 0.2 else draw.sample(alive, min(1, len(alive))):
            os.kill(victim, signal.SIGKILL)
            eventually(lambda victim=victim: victim not in children(worker), every=0.005)
            stage.run.note_end_of(f"worker:{victim}")
    eventually(lambda: progress() == total, within=90)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 8))])
def test_postgresql_has_each_change_once_and_in_order(
    make_stage: MakeStage, postgres: PostgresServer, seed: int
) -> None:
    draw, tables, rows = random.Random(seed), [f"t{number}" for number in range(6)], 300
    stage = make_stage(partitions=2)
    url = postgres.new_database("target")
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE SCHEMA shop")
        for table in tables:
            columns = "n bigserial, id bigint, seq bigint, name varchar(64)"  # without a key
            connection.exec_driver_sql(f"CREATE TABLE shop.{table} ({columns})")
    source = stage.source()
    for first in range(0, rows, 3):
        for table in tables:
            record: dict[str, Any] = json.loads(canal_insert(table, range(first, first + 3)))
            source.send(json.dumps({**record, "pkNames": None}).encode(), key=table.encode())
    source.flush()
    worker = stage.worker(
        handlers=[{"type": "sql", "url": url}],
        lanes={**PROCESSES, "count": 4},
        batch={"max_records": 3},
        checkpoint={"interval": "1h", "directory": str(stage.folder / "state")},
    ).start(within=120)

    def finished() -> int:
        return sum(int(worker.table(f"shop.{table}").get("finished_records", 0)) for table in tables)

    kill_at_random(stage, worker, draw, finished, len(tables) * rows // 3)

    def ended() -> float:
        at_their_starts = worker.logged("lane_process_not_started")
        assert all(each["error"] == "it ended at its start: SIGKILL" for each in at_their_starts)
        return worker.metric("binlane_lane_processes_ended_total") + len(at_their_starts)

    eventually(lambda: ended() >= 6)  # the last one may have ended a moment ago
    assert worker.sigterm() == 0
    with engine.connect() as connection:
        for table in tables:
            found = connection.exec_driver_sql(f"SELECT seq FROM shop.{table} ORDER BY n")
            assert [seq for (seq,) in found] == list(range(rows)), table
    engine.dispose()


def test_a_row_that_crashes_a_library_is_one_dead_letter(make_stage: MakeStage, broker: Broker) -> None:
    stage = make_stage()
    broker.create_topic(f"{stage.topic}.dead")
    source = stage.source()
    source.insert("t0", records=12)
    source.insert("t1", records=12)
    source.flush()
    table = {
        "match": "*",
        "handlers": [stage.recording(crash={"shop.t0": [5]})],
        "on_failure": "dead_letter",
        "retry": {"max_attempts": 1, "initial_delay": "50ms", "max_delay": "50ms"},
    }
    lanes = {**PROCESSES, "processes": 1}
    worker = stage.worker(tables=[table], dead_letter=with_dead_letters(stage), lanes=lanes).start(within=120)
    stage.wait_committed_to_the_end()
    [letter] = letters(stage)
    headers = dict(letter.headers() or [])
    assert json.loads(letter.value() or b"")["data"][0]["seq"] == "5"
    assert b"ended: SIGSEGV" in (headers["binlane.error"] or b"")
    assert set(stage.run.seqs()["shop.t0"]) == set(range(12)) - {5}
    assert set(stage.run.seqs()["shop.t1"]) == set(range(12))
    assert worker.sigterm() == 0


def test_a_stopped_process_begins_nothing_after_its_partition_has_left(make_stage: MakeStage) -> None:
    stage = make_stage(partitions=2)
    source = stage.source()
    for partition in (0, 1):
        for table in range(3):
            source.insert(f"t{partition}{table}", records=300, partition=partition)
    source.flush()
    options: dict[str, Any] = {
        "handlers": [stage.recording(row_sleep=0.005)],
        "lanes": PROCESSES,
        "batch": {"max_records": 5},
        "revoke_timeout": "1s",
    }
    first = stage.worker("first", **options).start(within=120)
    stage.wait_rows(100)
    stopped = children(first)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    second = stage.worker("second", **options).start(within=120)

    def moved() -> bool:
        return len(second.status()["partitions"]) == 1

    eventually(moved, within=60)
    [taken] = [each["partition"] for each in second.status()["partitions"]]
    tables = {f"shop.t{taken}{table}" for table in range(3)}
    handled = stage.run.handled()
    stage.wait_rows(handled + 30)
    mark = stage.run.mark()
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    stage.wait_committed_to_the_end()
    late = [
        event
        for event in stage.run.events()[mark:]
        if event["event"] == "start" and event["table"] in tables and not event["worker"].startswith("second")
    ]
    assert late == [], "its calls that ran already may end, but none begins"
    assert [first.sigterm(), second.sigterm()] == [0, 0]
    stage.check(NothingLost(source.rows))


def test_rules_change_while_processes_are_killed(make_stage: MakeStage) -> None:
    draw = random.Random(41)
    stage = make_stage(partitions=2)
    source = stage.source()
    for _ in range(300):
        for table in range(6):
            source.insert(f"t{table}", rows=3)
    source.flush()
    handler = stage.recording(row_sleep=0.003)
    worker = stage.worker(handlers=[handler], lanes=PROCESSES, batch={"max_records": 10}).start(within=120)
    asked = 0

    def progress() -> int:
        nonlocal asked
        done, reloads = stage.run.handled(), len(worker.logged("reloaded"))
        if done > asked * source.count // 6 and asked == reloads:
            asked += 1
            worker.config["tables"][0]["handlers"] = [stage.recording(row_sleep=0.003 + asked / 10000)]
            (worker.folder / "binlane.yaml").write_text(yaml.safe_dump(worker.config))
        return done

    kill_at_random(stage, worker, draw, progress, source.count)
    assert len(worker.logged("reloaded")) >= 3
    stage.wait_committed_to_the_end()
    assert worker.logged("reload_refused") == []
    assert worker.sigterm() == 0
    stage.check(NothingLost(source.rows), TableOrder(), NothingTwiceButWhatRan(), NeverTwoAtOnce())


@pytest.mark.parametrize("delay", [0.02, 0.3, 1.0])
def test_no_process_that_just_starts_outlives_its_worker(make_stage: MakeStage, delay: float) -> None:
    stage = make_stage()
    worker = stage.worker(lanes=PROCESSES).start(within=120)
    [victim, other] = children(worker)
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: len(set(children(worker)) - {victim}) == 2, every=0.005)
    time.sleep(delay)
    pids = set(children(worker))
    os.kill(other, signal.SIGSTOP)
    assert worker.process is not None
    worker.expected_to_end = True
    os.kill(worker.process.pid, signal.SIGKILL)
    worker.wait()
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), within=10)
