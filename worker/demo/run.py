"""Run the demo: Kafka, the shop, the worker with Spark, and the comparison with the source."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import yaml

from handlers.spark.runtime.jars import KAFKA_VERSION, delta_jars, kafka_jars
from handlers.spark.runtime.versions import find_java
from worker.demo.screen import Difference, Result, Screen, TableResult, compare, compare_columns, show_result
from worker.demo.shop_changes import Shop, now_ms, play
from worker.demo.shop_source import SourceTable
from worker.demo.shop_tables import DATABASE
from worker.demo.worker_process import WorkerFailed, WorkerProcess
from worker.local.broker import Broker
from worker.observing.status import WorkerStatus

_TOPIC = "cdc.shop"
_LANES = 4
_BATCH_RECORDS = 1_000
_POLL_SECONDS = 0.2
_QUERIES_AT_ONCE = 2
_LIMIT_SECONDS = 600.0
# Useful for processes that end within a minute: Java compiles quickly instead of well.
_SPARK = {
    "concurrency": _LANES,
    "conf": {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
}


def run_demo(screen: Screen, directory: Path, *, changes: int, seed: int) -> bool:
    """Return whether every table's replica equals the source.

    Raises BrokerError, JarsError, JavaError, KafkaException, WorkerFailed, and RuntimeError if Spark does not
    start."""
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
                ops = Counter(op for table in shop.tables.values() for op in table.history)
                step.text = (
                    f"{ops.total():,} changes of {len(shop.tables)} tables in {played.total():,} messages, "
                    f"{ops['ddl']} ALTER TABLE and {ops['truncate']} TRUNCATE among them"
                )
            with screen.step("starting the worker") as step:
                worker.wait_until_it_serves()
                step.text = f"`binlane run {config.name}`, {_LANES} lanes; its status page: {worker.url}"
            _watch(screen, worker, played)
            faults = _look_at_view(screen, worker, directory, shop)
            _wait_for_merges(screen, worker)
            with screen.step("SIGTERM: the worker drains") as step:
                code = worker.drain()
                step.text = f"SIGTERM: the worker drained and ended with exit code {code}"
            if code:
                faults.append(f"the worker ended with exit code {code} instead of 0")
            with screen.step("comparing the tables with the source") as step:
                result = Result(_compare_all(directory, shop, tell=step.tell), faults)
                rows = sum(table.replica_rows for table in result.tables)
                step.text = f"{rows:,} rows of {len(result.tables)} Delta tables compared with the source"
            faults += _read_with_spark(screen, directory, shop)
    show_result(screen.console, result, seconds=time.monotonic() - began)
    return result.good


def _configuration(bootstrap_servers: str, directory: Path) -> str:
    document = {
        "name": "demo",
        "kafka": {"bootstrap_servers": bootstrap_servers, "group_id": "demo", "topics": [_TOPIC]},
        "format": "canal",
        "lanes": {"count": _LANES},
        "batch": {"max_records": _BATCH_RECORDS},
        "checkpoint": {"interval": "1s", "directory": str(directory / "state")},
        "tables": [
            {
                "match": f"{DATABASE}.*",
                "handlers": [{"type": "spark", "mode": "replica"}],
            }
        ],
        "http": {"host": "127.0.0.1", "port": 0},
        "logging": {"level": "info", "format": "json"},
        "spark": _SPARK,
    }
    head = "# Written by `binlane demo`; `binlane check` explains it.\n"
    return head + yaml.safe_dump(document, sort_keys=False)


def _watch(screen: Screen, worker: WorkerProcess, played: Counter[str]) -> None:
    """Show progress until all is committed. Raises WorkerFailed."""
    began, end = time.monotonic(), played.total()
    total = end - played[""]  # without the statement about the database
    with screen.progress(total) as progress:
        while True:
            status = _status(worker)
            if status is not None:
                progress.update(status)
                if sum(each.committed or 0 for each in status.partitions) >= end:
                    break
            _pause(began)
    seconds = time.monotonic() - began
    screen.done(f"{end:,} messages handled: durable and committed", seconds)


def _look_at_view(screen: Screen, worker: WorkerProcess, directory: Path, shop: Shop) -> list[str]:
    """Compare the view of the table with the most unmerged rows with the source."""
    _wait_for_statements(screen, worker)
    waiting = {name: rows for name, rows in _waiting_rows(worker).items() if shop.tables[name].key}
    name = max(waiting, key=lambda one: (waiting[one], one), default="orders")
    table = shop.tables[name]
    with screen.step(f"reading the view of {name}") as step:
        rows, differences = _compared(name, table, directory)
        equal = "equal to the source" if not differences else f"{len(differences):,} differences"
        step.text = (
            f"the view of {name}: {len(rows):,} rows, {equal}, {waiting.get(name, 0):,} changes yet to merge"
        )
    return [f"{name}, its view: {each.row}: {each.what}" for each in differences]


def _compared(name: str, table: SourceTable, directory: Path) -> tuple[list[Any], list[Difference]]:
    """Return the replica's rows, and their differences from the source."""
    # Its modules take a second to import, which the screen shows as part of a step.
    from handlers.spark.read.in_duckdb import read_at  # noqa: PLC0415 (see above)

    found = read_at(str(directory / "lake" / DATABASE / name))
    rows = found.to_pylist()
    return rows, _differences(name, table, found.column_names, rows)


def _differences(
    name: str, table: SourceTable, columns: Sequence[str], rows: Sequence[Any]
) -> list[Difference]:
    differences = compare_columns(name, [column.name for column in table.columns], columns)
    return differences + compare(name, table.key, table.rows.values(), rows)


def _read_with_spark(screen: Screen, directory: Path, shop: Shop, name: str = "orders") -> list[str]:
    """Compare a table in Spark, too, with the source. The worker needs no Spark, so this is the first one."""
    with screen.step("starting Spark to read a table with it") as step:
        from handlers.spark.options import SparkSection  # noqa: PLC0415 (like DuckDB's modules)
        from handlers.spark.read.current import current  # noqa: PLC0415 (like DuckDB's modules)
        from handlers.spark.runtime.session import SharedSpark  # noqa: PLC0415 (like DuckDB's modules)

        spark = SharedSpark(SparkSection.model_validate({**_SPARK, "ui": False}), directory, "demo")
        try:
            frame = current(spark.session, str(directory / "lake" / DATABASE / name))
            rows = [row.asDict() for row in frame.collect()]
            differences = _differences(name, shop.tables[name], frame.columns, rows)
            equal = "equal to the source" if not differences else f"{len(differences):,} differences"
            step.text = f"Spark {spark.session.version} reads {name}, too: {len(rows):,} rows, {equal}"
        finally:
            spark.stop()
    return [f"{name}, in Spark: {each.row}: {each.what}" for each in differences]


def _wait_for_statements(screen: Screen, worker: WorkerProcess) -> None:
    """Wait until no view ends before a statement of the source. Raises WorkerFailed."""
    began = time.monotonic()
    with screen.step("following the source's statements") as step:
        while any(table["views_wait"] for table in _spark_tables(worker)):
            _pause(began)
        step.text = "the source's statements are followed"


def _wait_for_merges(screen: Screen, worker: WorkerProcess) -> None:
    """Wait until every table is merged completely. Raises WorkerFailed."""
    began = time.monotonic()
    with screen.step("merging") as step:
        while waiting := _waiting_rows(worker):
            rows, tables = sum(waiting.values()), len(waiting)
            step.tell(f"merging {rows:,} changes into {tables} table{'s' if tables > 1 else ''}")
            _pause(began)
        step.text = "everything merged into the Delta tables"


def _waiting_rows(worker: WorkerProcess) -> dict[str, int]:
    """Return the number of unmerged rows of each table that has any. Raises WorkerFailed."""
    tables = _spark_tables(worker)
    return {
        table["table"].partition(".")[2]: table["waiting_rows"] for table in tables if table["waiting_rows"]
    }


def _spark_tables(worker: WorkerProcess) -> Sequence[Mapping[str, Any]]:
    """Return the worker's status of each table. Raises WorkerFailed."""
    began = time.monotonic()
    while (status := _status(worker)) is None:
        _pause(began)
    tables: list[Mapping[str, Any]] = [
        table for handler in status.handlers for table in handler.get("tables", ())
    ]
    for table in tables:
        if table["error"] is not None:
            raise WorkerFailed(f"{table['table']} cannot be merged: {table['error']}")
    return tables


def _status(worker: WorkerProcess) -> WorkerStatus | None:
    status = worker.status()
    if status is not None and status.error is not None:
        raise WorkerFailed(f"the worker halted: {status.error}")
    return status


def _pause(began: float) -> None:
    """Wait before the next query. Raises WorkerFailed after too long."""
    if time.monotonic() - began > _LIMIT_SECONDS:
        raise WorkerFailed(f"the worker has not finished after {_LIMIT_SECONDS:g} s")
    time.sleep(_POLL_SECONDS)


def _compare_all(directory: Path, shop: Shop, *, tell: Callable[[str], None]) -> list[TableResult]:
    def look(name: str, table: SourceTable) -> TableResult:
        tell(f"comparing {name} with the source")
        rows, differences = _compared(name, table, directory)
        told = [f"{difference.row}: {difference.what}" for difference in differences]
        return TableResult(name, len(table.history), len(table.rows), len(rows), told)

    with ThreadPoolExecutor(_QUERIES_AT_ONCE, "demo-query") as queries:
        return list(queries.map(look, shop.tables, shop.tables.values()))
