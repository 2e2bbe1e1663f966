"""A Spark table that cannot be written stops itself alone: everyone sees it and why, and once the cause is
mended all rows are there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from integration.letters import binlane, listed, with_dead_letters
from integration.process import WorkerProcess, eventually
from integration.spark_shop import wait_merged
from integration.stage import Stage
from spark_sessions import LIGHT, SparkKeeper

from worker.local.broker import Broker

ROWS = 40


@pytest.fixture(scope="module")
def spark(spark_keeper: SparkKeeper) -> Any:
    """Another job's."""
    return spark_keeper.get().session


def worker_of(stage: Stage, **table: Any) -> WorkerProcess:
    entry = {
        "match": "*",
        "batch": {"max_records": 10, "max_wait": "50ms"},
        "handlers": [{"type": "spark", "mode": "replica", "merge": {"max_age": "1s", "at_close": "1m"}}],
        **table,
    }
    return stage.worker(tables=[entry], spark=LIGHT, shutdown_timeout="90s")


def ids(spark: Any, worker: WorkerProcess, table: str) -> list[int]:
    found = spark.read.format("delta").load(f"{worker.folder}/lake/shop/{table}").select("id").collect()
    return sorted(row["id"] for row in found)


# Each by itself: handlers/spark_engine/test_spark_faults.py; a blocked table: test_unblock_runs.py.
@pytest.mark.soak
def test_tables_with_a_conflicting_schema_and_an_unwritable_place_are_blocked_and_the_others_go_on(
    stage: Stage, spark: Any
) -> None:
    worker = worker_of(stage, retry={"max_attempts": 2, "initial_delay": "50ms", "max_delay": "100ms"})
    lake = worker.folder / "lake"
    spark.sql(f"CREATE TABLE delta.`{lake}/shop/t1` (id BIGINT, seq BIGINT, name DATE) USING delta")
    place: Path = lake / "_binlane/shop/t2"
    place.parent.mkdir(parents=True)
    place.write_text("a file, so that not even root can make the folder")

    worker.start(within=90)
    source = stage.source()
    for _ in range(ROWS):
        for table in ("t0", "t1", "t2"):
            source.insert(table)
    source.flush()
    blocked = {"shop.t1": "column 'name' is date in ", "shop.t2": "Not a directory"}
    eventually(
        lambda: all(worker.table(table).get("state") == "blocked" for table in blocked),
        within=60,
        what="both tables are blocked",
    )
    eventually(lambda: worker.table("shop.t0").get("finished_records") == ROWS, within=60)
    told = {table["table"]: table for table in worker.status()["tables"]}
    for table, reason in blocked.items():
        offset = 1 if table == "shop.t1" else 2
        assert reason in told[table]["error"]
        assert f"{table}, {stage.topic}[0] offset {offset}" in told[table]["error"]
        assert told[table]["finished_records"] == 0
    assert worker.metric("binlane_tables_blocked") == 2
    text = " ".join(binlane(worker, "status", str(worker.url)).stdout.split())
    assert "shop.t1" in text
    assert "blocked" in text
    assert "is date in" in text
    assert "Not a directory" in text
    worker.sigterm(120)
    assert ids(spark, worker, "t0") == list(range(ROWS))

    shutil.rmtree(lake / "shop/t1")
    place.unlink()
    worker.start(within=90)
    wait_merged(stage, worker)
    assert worker.sigterm(120) == 0
    for table in ("t0", "t1", "t2"):
        assert ids(spark, worker, table) == list(range(ROWS))


# Dead letters of a whole worker: test_dead_letter_runs.py; what Spark refuses and takes when it is mended:
# handlers/spark_engine/test_spark_faults.py.
@pytest.mark.soak
def test_a_conflicting_schema_makes_dead_letters_where_that_is_configured_and_replay_brings_the_rows(
    stage: Stage, spark: Any, broker: Broker
) -> None:
    worker = worker_of(stage, on_failure="dead_letter")
    broker.create_topic(f"{stage.topic}.dead")
    worker.config["dead_letter"] = with_dead_letters(stage, 1.0)
    spark.sql(f"CREATE TABLE delta.`{worker.folder}/lake/shop/t1` (id DATE) USING delta")
    worker.start(within=90)
    source = stage.source()
    for _ in range(ROWS):
        source.insert("t0")
        source.insert("t1")
    source.flush()
    wait_merged(stage, worker)
    assert worker.metric("binlane_dead_letters_total", table="shop.t1") == ROWS
    assert worker.metric("binlane_dead_letters_total") == ROWS
    assert "column 'id' is date in " in listed(worker)[0]["error"]
    assert worker.sigterm(120) == 0
    assert ids(spark, worker, "t0") == list(range(ROWS))

    shutil.rmtree(worker.folder / "lake/shop/t1")
    replayed = binlane(worker, "dead-letters", "replay", "CONFIG", "--all", "--yes")
    assert replayed.returncode == 0, replayed.stderr
    assert ids(spark, worker, "t1") == list(range(ROWS))
