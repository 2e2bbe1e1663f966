"""The demo from end to end: Kafka, the shop, the worker with Spark, and the replica against the source."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import yaml

from handlers.spark import SparkSection
from worker.broker import Broker
from worker.demo.commits import read_commits
from worker.demo.play import Played, now_ms, play
from worker.demo.recorder import read_batches
from worker.demo.report import Result, TableResult, show_result
from worker.demo.screen import Screen
from worker.demo.shop import Shop
from worker.demo.shop_tables import DATABASE
from worker.demo.source import SourceTable
from worker.demo.timeline import at_once, lane_work, order_faults, spans, table_work
from worker.demo.worker_process import WorkerFailed, WorkerProcess
from worker.jars import KAFKA_VERSION, delta_jars, kafka_jars
from worker.java import find_java

__all__ = ["run_demo"]

_TOPIC = "cdc.shop"
_LANES = 4
_BATCH_RECORDS = 4_000
_POLL_SECONDS = 0.2
_QUERIES_AT_ONCE = 2
_LIMIT_SECONDS = 600.0
# Worth it in processes that end within a minute: Java compiles quickly instead of well.
_SPARK = {
    "concurrency": _LANES,
    "conf": {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
}


def run_demo(screen: Screen, directory: Path, *, changes: int, seed: int) -> bool:
    """True when every table was handled in order and its replica equals the source.

    Raises BrokerError, JarsError, JavaError, KafkaException, WorkerFailed, and RuntimeError when Spark
    does not start.
    """
    began = time.monotonic()
    with screen.step("looking for Java and its libraries") as step:
        java = find_java()
        count = len(kafka_jars()) + len(delta_jars())
        step.text = f"Java {java.version} and {count} libraries for Kafka and Delta Lake"
    with closing(Broker()) as broker:
        with screen.step("starting Kafka") as step:
            broker.start()
            broker.create_topic(_TOPIC)
            step.text = f"Kafka {KAFKA_VERSION} at {broker.bootstrap_servers}: one real node, one partition"
        config = directory / "binlane.yaml"
        config.write_text(_configuration(broker.bootstrap_servers, directory), encoding="utf-8")
        with WorkerProcess(config, directory / "worker.log") as worker:
            shop = Shop(changes, seed=seed, clock=now_ms)
            with screen.step("the shop opens") as step:
                played = play(shop, broker.bootstrap_servers, _TOPIC)
                count = sum(len(table.history) for table in shop.tables.values())
                step.text = f"{count:,} changes of {len(shop.tables)} tables in {played.total():,} messages"
            with screen.step("starting the worker") as step:
                worker.wait_until_it_serves()
                step.text = f"`binlane run {config.name}`, {_LANES} lanes; its status page: {worker.url}"
            _watch(screen, worker, played)
            with screen.step("SIGTERM: the worker drains") as step:
                code = worker.drain()
                step.text = f"SIGTERM: the worker drained and ended with exit code {code}"
    with screen.step("starting Spark to ask it for the replica") as step:
        result = _result(directory, shop, code, step.tell)
        rows = sum(table.replica_rows for table in result.tables)
        step.text = f"{rows:,} rows replayed from the changelog by Spark, compared with the source"
    show_result(screen.console, result, seconds=time.monotonic() - began)
    return result.good


def _configuration(bootstrap_servers: str, directory: Path) -> str:
    document = {
        "name": "demo",
        "kafka": {"bootstrap_servers": bootstrap_servers, "group_id": "demo", "topics": [_TOPIC]},
        "format": "canal",
        "lanes": {"count": _LANES},
        "batch": {"max_records": _BATCH_RECORDS, "max_wait": "1s"},
        "checkpoint": {"interval": "1s", "directory": str(directory / "state")},
        "tables": [
            {
                "match": f"{DATABASE}.*",
                "handlers": [
                    {"type": "spark", "mode": "changelog"},
                    {"type": "worker.demo.recorder:Recorder", "name": "recorder", "directory": "batches"},
                ],
            }
        ],
        "http": {"host": "127.0.0.1", "port": 0},
        "logging": {"level": "info", "format": "json"},
        "spark": _SPARK,
    }
    head = "# Written by `binlane demo`; `binlane check` explains it.\n"
    return head + yaml.safe_dump(document, sort_keys=False)


def _watch(screen: Screen, worker: WorkerProcess, played: Played) -> None:
    """Show progress until all is committed. Raises WorkerFailed."""
    began, end = time.monotonic(), played.total()
    totals = {table: count for table, count in played.most_common() if table}
    with screen.progress(totals) as progress:
        while True:
            status = worker.status()
            if status is not None:
                progress.update(status)
                if status.error is not None:
                    raise WorkerFailed(f"the worker halted: {status.error}")
                if sum(partition.committed or 0 for partition in status.partitions) >= end:
                    break
            if time.monotonic() - began > _LIMIT_SECONDS:
                raise WorkerFailed(f"the worker has not finished after {_LIMIT_SECONDS:g} s")
            time.sleep(_POLL_SECONDS)
    screen.done(f"{end:,} messages handled, written to Delta tables and committed", time.monotonic() - began)


def _result(directory: Path, shop: Shop, code: int, tell: Callable[[str], None]) -> Result:
    # Spark's modules take a second to import, which the screen shows as part of this step.
    from handlers.spark.session import SharedSpark  # noqa: PLC0415 (see above)
    from worker.demo.verify import compare, replica  # noqa: PLC0415 (see above)

    batches = read_batches(directory / "batches")
    lake = directory / "lake" / DATABASE
    commits = {name: read_commits(lake / name) for name in shop.tables}
    found = spans(batches, commits)

    def look(name: str, table: SourceTable) -> TableResult:
        tell(f"asking Spark for the replica of {name}")
        columns = [column.name for column in table.columns]
        rows = replica(spark.session, str(lake / name), columns, table.key)
        differences = compare(name, table.key, table.rows.values(), rows)
        return TableResult(
            table_work(found, name),
            len(table.rows),
            len(rows),
            order_faults(name, table.history, batches, commits[name]),
            [f"{difference.row}: {difference.what}" for difference in differences],
        )

    spark = SharedSpark(SparkSection.model_validate(_SPARK), directory, "demo")
    try:
        with ThreadPoolExecutor(_QUERIES_AT_ONCE, "demo-query") as queries:
            tables = list(queries.map(look, shop.tables, shop.tables.values()))
    finally:
        spark.stop()
    most, mean = at_once(found)
    worked = max(span.ended for span in found) - min(span.began for span in found) if found else 0.0
    faults = [] if code == 0 else [f"the worker ended with exit code {code} instead of 0"]
    return Result(tables, lane_work(found, _LANES), most, mean, worked, faults)
