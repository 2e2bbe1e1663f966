"""A worker takes records before its Spark is up, and loses none whatever becomes of that."""

from __future__ import annotations

import json
import shlex
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from delta_reading import read_delta
from integration.conftest import MakeStage
from integration.process import WorkerProcess, eventually
from integration.source import canal_insert
from integration.spark_shop import PATIENCE
from integration.stage import Stage
from spark_sessions import LIGHT

from handlers.spark.runtime.versions import find_java

JAVA = """#!/bin/sh
# Spark's Java waits for the file `go`, fails where that says so, and ends with the worker.
case "$*" in *launcher.Main*) ;; *SparkSubmit*)
  while [ ! -e {go} ]; do kill -0 $PPID || exit 1; sleep 0.1; done
  if [ -s {go} ]; then cat {go}; exit 7; fi
esac
exec {java} "$@"
"""


class HeldSpark:
    """A worker whose Spark starts when it may."""

    def __init__(
        self, stage: Stage, conf: Mapping[str, str] | None = None, engine: str = "spark", **sections: Any
    ) -> None:
        self.stage = stage
        home = stage.folder / "java"
        self._go = home / "go"
        (home / "bin").mkdir(parents=True)
        java = home / "bin/java"
        java.write_text(
            JAVA.format(go=shlex.quote(str(self._go)), java=shlex.quote(str(find_java().executable)))
        )
        java.chmod(0o755)
        (home / "lib").symlink_to(find_java().home / "lib")  # by which its archive of classes is known
        handler = {"type": "spark", "mode": "replica", "merge": {"max_age": "0s", "at_close": "1m"}}
        handler["merge"]["engine"] = engine
        # One thread merges: a table that waits for Spark must not keep it.
        spark = {**LIGHT, "conf": {**LIGHT["conf"], **(conf or {})}, "concurrency": 1}
        self.worker = stage.worker(tables=[{"match": "*", "handlers": [handler]}], spark=spark, **sections)
        self.worker.environment = {"JAVA_HOME": str(home)}
        self.source = stage.source()

    def start(self) -> WorkerProcess:
        """Again: held again."""
        self._go.unlink(missing_ok=True)
        return self.worker.start(within=PATIENCE)

    def let_go(self, fault: str = "") -> None:
        """Java starts now; or fails, and says this."""
        self._go.with_name("next").write_text(fault)
        self._go.with_name("next").rename(self._go)

    def insert(self, count: int, table: str = "orders") -> None:
        for _ in range(count):
            self.source.insert(table)
        self.source.flush()

    def state(self, sql: str, table: str) -> None:
        """A statement of the source."""
        record = {**json.loads(canal_insert(table, [])), "type": "ALTER", "isDdl": True, "sql": sql}
        self.source.send(json.dumps({**record, "data": None, "mysqlType": None}).encode(), key=table.encode())
        self.source.flush()

    def segments(self) -> list[Path]:
        return sorted((self.worker.folder / "lake/_binlane/shop/orders").glob("**/*.parquet"))

    def wait_merged(self, rows: int, name: str = "orders", within: float = PATIENCE) -> None:
        table = self.worker.folder / "lake/shop" / name

        def is_merged() -> bool:
            self.worker.alive()
            return any((table / "_delta_log").glob("*.json")) and len(read_delta(table, "id")) == rows

        eventually(is_merged, within=within, what=f"{rows} rows are merged", every=0.5)


@pytest.fixture
def held(stage: Stage) -> HeldSpark:
    return HeldSpark(stage)


def test_records_are_durable_and_committed_before_spark_is_up_and_merged_when_it_comes(
    held: HeldSpark,
) -> None:
    worker = held.start()
    held.insert(20)
    held.stage.wait_committed_to_the_end()
    assert held.segments()
    assert worker.healthy()
    [handler] = worker.status()["handlers"]
    assert handler["spark"]["up"] is False
    assert handler["tables"][0]["waiting_rows"] == 20
    assert worker.metric("binlane_spark_up") == 0
    assert not worker.logged("spark_started")

    # Killed, with all that it has: the next one goes on, before its Spark is up.
    worker.kill9()
    held.insert(10)
    held.start()
    held.stage.wait_committed_to_the_end()
    assert not worker.logged("spark_started")
    held.let_go()
    held.wait_merged(30)
    eventually(lambda: worker.metric("binlane_spark_up") == 1, what="Spark is told to be up")
    assert worker.sigterm(PATIENCE) == 0, worker.tail()


def test_small_replicas_start_no_spark_and_a_table_that_needs_it_holds_up_no_other(stage: Stage) -> None:
    held = HeldSpark(stage, engine="auto")
    worker = held.start()
    held.insert(20)
    held.insert(3, "customers")
    held.wait_merged(20)
    held.wait_merged(3, "customers")
    [handler] = worker.status()["handlers"]
    assert handler["spark"]["up"] is None
    # Started again, with rows that wait.
    worker.kill9()
    held.insert(10)
    held.start()
    held.wait_merged(30)
    assert worker.status()["handlers"][0]["spark"]["up"] is None
    held.insert(1, "customers")
    held.wait_merged(4, "customers")
    # Only Spark fills in a FLOAT. The statement is in the log, for whoever merges.
    held.state("ALTER TABLE customers ADD COLUMN weight FLOAT DEFAULT 1.1", "customers")
    eventually(lambda: worker.status()["handlers"][0]["spark"]["up"] is False, what="Spark starts")
    held.insert(5)
    held.wait_merged(35, within=60)
    assert not worker.logged("spark_merge_failed")
    assert not worker.logged("spark_started")
    held.let_go()
    customers = worker.folder / "lake/shop/customers"
    filled = [{"weight": pytest.approx(1.1)}] * 4
    eventually(lambda: read_delta(customers, "weight") == filled, within=PATIENCE, what="it is filled")
    held.insert(1)
    held.wait_merged(36)
    assert worker.sigterm(PATIENCE) == 0, worker.tail()


def test_a_spark_that_is_needed_later_and_does_not_start_ends_the_worker_and_says_why(stage: Stage) -> None:
    held = HeldSpark(stage, engine="auto")
    worker = held.start()
    held.insert(1)
    held.wait_merged(1)
    held.state("ALTER TABLE orders ADD COLUMN weight FLOAT DEFAULT 1.1", "orders")
    held.let_go("there is no room for a heap")
    assert worker.wait(PATIENCE) == 1, worker.tail()
    told = worker.logged("worker_fault")[0]["error"]
    assert "handler spark needs Spark" in told
    assert "Spark's Java process did not start: there is no room for a heap" in told


@pytest.mark.soak
def test_a_worker_that_stops_before_spark_is_up_merges_what_it_still_can(held: HeldSpark) -> None:
    worker = held.start()
    held.insert(5)
    held.stage.wait_committed_to_the_end()
    worker.terminate()
    eventually(lambda: worker.logged("draining"), what="it drains")
    held.let_go()
    assert worker.wait(PATIENCE) == 0, worker.tail()
    assert len(read_delta(worker.folder / "lake/shop/orders", "id")) == 5


# A handler that is let go as the worker stops: core/test_handler_close.py.
@pytest.mark.soak
def test_a_batch_that_needs_spark_waits_for_it_and_is_let_go_when_the_worker_stops(held: HeldSpark) -> None:
    worker = held.start()
    held.let_go()
    held.insert(3)
    held.wait_merged(3)
    assert worker.sigterm(PATIENCE) == 0, worker.tail()
    # A new column is fitted to the table by Spark alone.
    before = held.stage.committed()[0]
    record = json.loads(canal_insert("orders", [3]))
    record["data"][0]["note"] = "new"
    record["mysqlType"]["note"], record["sqlType"]["note"] = "varchar(20)", 12
    held.source.send(json.dumps(record).encode(), key=b"orders")
    held.source.flush()
    held.start()
    eventually(lambda: worker.table("shop.orders").get("state") == "running", what="the batch is begun")
    assert worker.sigterm(PATIENCE) == 0, worker.tail()
    assert held.stage.committed()[0] == before
    held.start()
    held.let_go()
    held.wait_merged(4)
    held.stage.wait_committed_to_the_end()


def test_a_spark_that_does_not_start_ends_the_worker_and_says_why(held: HeldSpark) -> None:
    worker = held.start()
    held.insert(5)
    held.stage.wait_committed_to_the_end()
    held.let_go("there is no room for a heap")
    assert worker.wait(PATIENCE) == 1, worker.tail()
    told = worker.logged("worker_fault")[0]["error"]
    assert "handler spark needs Spark" in told
    assert "Spark's Java process did not start: there is no room for a heap" in told


@pytest.mark.soak
def test_a_spark_that_never_starts_ends_the_worker_after_its_start_timeout(make_stage: MakeStage) -> None:
    held = HeldSpark(make_stage(), start_timeout="12s")
    worker = held.start()
    assert worker.wait(PATIENCE) == 1, worker.tail()
    told = worker.logged("worker_fault")[0]["error"]
    assert "has not started: not done within 1" in told
    assert "launch_gateway" in told


@pytest.mark.soak
def test_a_default_file_system_that_nobody_could_know_of_ends_the_worker_and_says_where_records_are(
    stage: Stage,
) -> None:
    jar = stage.folder / "site.jar"
    jar.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(jar, "w") as site:
        name, value = "<name>fs.defaultFS</name>", "<value>hdfs://127.0.0.1:1</value>"
        site.writestr("core-site.xml", f"<configuration><property>{name}{value}</property></configuration>")
    held = HeldSpark(stage, conf={"spark.jars": str(jar)})
    worker = held.start()
    held.let_go()
    assert worker.wait(PATIENCE) == 1, worker.tail()
    told = worker.logged("worker_fault")[0]["error"]
    assert "was read as a folder of this machine, but Spark's fs.defaultFS is hdfs" in told
