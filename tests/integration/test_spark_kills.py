"""Two workers of one group write the same Spark tables while both are restarted and killed: each change is in
them once."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from delta_reading import read_delta
from deltalake import DeltaTable
from integration.conftest import MakeStage
from integration.evolving_tables import Row
from integration.process import WorkerProcess, eventually
from integration.spark_shop import PATIENCE, merges, spark_tables
from integration.spread_shop import SpreadShop, difference
from integration.stage import Stage
from spark_sessions import LIGHT, SparkKeeper

from handlers.spark.read.current import current

pytestmark = pytest.mark.soak

PARTITIONS = 4
MODES = {
    "orders": ("replica", "history", "changelog"),
    "visits": ("replica", "changelog"),
    "items": ("replica", "changelog"),
}
TABLES = [(mode, table) for table, modes in MODES.items() for mode in modes]
"""(mode, source table) of each Spark table."""
SHOWN_AS_MERGED = [("history", "orders"), ("replica", "visits")]
"""Those whose view does not show what waits."""
KILLS = int(os.environ.get("BINLANE_KILLS") or 30)
SEED = int(os.environ.get("BINLANE_SEED") or time.time_ns())
"""Of what ends, and when."""
Rows = Callable[[str, str, list[str]], list[Row]]
"""(mode, source table, columns) -> the rows of a Spark table."""


def worker_of(stage: Stage, name: str, engine: str) -> WorkerProcess:
    spark = {**LIGHT, "warehouse": str(stage.folder / "lake")}
    rules = rules_of(stage.folder / "lake", engine=engine, max_age="500ms", at_close="20s")
    return stage.worker(name, tables=rules, spark=spark, shutdown_timeout="3m")


def rules_of(lake: Path, **merge: str) -> list[dict[str, Any]]:
    """Small batches, so that both workers put segments of the same tables all the time."""

    def rule(match: str, *modes: str) -> dict[str, Any]:
        # Replicas with a change feed are not written anew: their rows are appended or merged. Without it,
        # their commits are made without Spark.
        properties = {"delta.enableChangeDataFeed": "true"} if merge["engine"] == "spark" else {}
        own = {"type": "spark", "merge": merge, "properties": properties}
        return {
            "match": match,
            "batch": {"max_records": 200, "max_wait": "1s"},
            "handlers": [
                {**own, "name": mode, "mode": mode, "path": f"{lake}/{mode}/{{table}}"} for mode in modes
            ],
            "retry": {"max_attempts": None, "initial_delay": "100ms", "max_delay": "2s"},
        }

    return [rule("shop.orders", "replica", "history", "changelog"), rule("*", "replica", "changelog")]


def ends(chance: random.Random) -> list[str]:
    """KILLS kills, of each kind as many; now and then, and at last, both workers are drained in turn."""
    kinds = [("worker and spark", "worker", "spark")[number % 3] for number in range(KILLS)]
    chance.shuffle(kinds)
    found = []
    for first in range(0, KILLS, 6):
        found += [*kinds[first : first + 6], "drain", "drain"]
    return found


def end(worker: WorkerProcess, how: str) -> None:
    spark = worker.spark_pid(PATIENCE)
    if how == "drain":
        assert worker.sigterm(PATIENCE) == 0, worker.tail()
    elif how == "spark":
        os.kill(spark, signal.SIGKILL)
        assert worker.wait(PATIENCE) == 1, worker.tail()
    else:
        worker.kill9()
        if how == "worker and spark":  # else Spark ends by itself, when it has done what it is at
            with suppress(ProcessLookupError):
                os.killpg(spark, signal.SIGKILL)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("engine", ["spark", "auto"])
def test_two_workers_on_the_same_tables_bring_in_each_change_once_however_often_they_end(
    make_stage: MakeStage, spark_keeper: SparkKeeper, engine: str
) -> None:
    """Rows of both tables with and without a key come over several partitions, so both workers have rows for
    the same Spark tables at any moment, not only while partitions move."""
    print(f"BINLANE_SEED={SEED}")
    chance = random.Random(SEED)
    stage = make_stage(PARTITIONS)
    lake = stage.folder / "lake"
    shop = SpreadShop(stage.source(), PARTITIONS)
    workers = [worker_of(stage, name, engine) for name in ("one", "other")]
    with shop.open(every=0.4):
        for worker in workers:
            worker.start(ready=False)
        turns = ends(chance)
        for number, how in enumerate(turns, 1):
            wait_ready(workers)
            worker = workers[number % 2]
            if chance.random() < 0.7:  # else it is ended while it looks what is there
                eventually(partial(merges, worker), within=PATIENCE, what="it merges", every=0.1)
            time.sleep(chance.uniform(0, 4))
            print(f"{time.strftime('%X')} {worker.folder.name}: {how}")
            end(worker, how)
            if number > len(turns) - len(workers):
                # What comes now is left to wait until both workers stop.
                worker.config["tables"] = rules_of(lake, engine=engine, max_age="1h", at_close="10m")
            worker.start(ready=False)
        wait_ready(workers)
        time.sleep(5)
    stage.wait_committed_to_the_end(PATIENCE)
    waiting = [each for worker in workers for each in spark_tables(worker).values() if each["waiting_rows"]]
    assert waiting

    spark = spark_keeper.get().session

    def shown(mode: str, table: str, columns: list[str]) -> list[Row]:
        found: list[Row] = current(spark, f"{lake}/{mode}/{table}").select(*columns).toArrow().to_pylist()
        return found

    assert differences(shop, shown, [each for each in TABLES if each not in SHOWN_AS_MERGED]) == {}

    for worker in workers:
        worker.terminate()
    assert [worker.wait(2 * PATIENCE) for worker in workers] == [0, 0]

    def merged(mode: str, table: str, columns: list[str]) -> list[Row]:
        return read_delta(lake / mode / table, ", ".join(columns))

    assert differences(shop, merged, TABLES) == {}
    for mode in MODES["orders"]:
        assert writers(lake / mode / "orders") == {"one", "other"}
        engines = {
            str(commit.get("engineInfo"))[:8] for commit in DeltaTable(lake / mode / "orders").history()
        }
        assert ("binlane" in engines) is (engine == "auto" and mode != "history")


def writers(folder: Path) -> set[str]:
    """The workers that made a table's commits."""
    notes = [json.loads(commit.get("userMetadata", "{}")) for commit in DeltaTable(folder).history()]
    return {note["binlane"]["worker"] for note in notes if "binlane" in note}


def wait_ready(workers: list[WorkerProcess]) -> None:
    """All of them: none ended by itself."""
    for worker in workers:
        worker.wait_ready(PATIENCE)
    assert all(worker.alive() for worker in workers)


def differences(shop: SpreadShop, rows: Rows, tables: list[tuple[str, str]]) -> dict[str, str]:
    """Spark table -> what it has too much or too little."""
    found = {}
    for mode, table in tables:
        expected = shop.expected(mode, table)
        if told := difference(rows(mode, table, list(expected[0])), expected):
            found[f"{mode} {table}"] = told
    return found
