"""Debezium's records in Kafka, into Delta and into PostgreSQL: a figure to lay beside published ones."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from benchmarks.context import Context
from benchmarks.processes import BenchmarkError
from benchmarks.results import Report
from benchmarks.servers import PostgresServer
from benchmarks.spark.debezium import RECORDS, debezium
from benchmarks.spark.feed import TopicTarget, write_backlog
from benchmarks.spark.load import DATABASE, Load, TableTruth, table_name
from benchmarks.spark.reached import Reached, reach
from benchmarks.spark.reader import differences, reader
from benchmarks.spark.sides import REPLICA, Side, binlane, table_folders
from benchmarks.spark.watch import Watch

__all__ = ["run"]

_LIMIT_SECONDS = 900
_LOOK_SECONDS = 0.1


def run(context: Context) -> Report:
    """Read one topic of Debezium's records into each target in turn, from a cold start."""
    records, tables = context.pick((500_000, 20), (4_000, 2))
    report = Report(
        "debezium_rates",
        f"{records:,} of Debezium's records in Kafka (JSON without schemas), of {tables} tables",
        {
            "target": "Into",
            "bytes": "Bytes a record",
            "rate": "Records/s",
            "rate_with_start": "with the start",
            "mib": "MiB/s",
            "cpu_million": "CPU s per million",
            "rss_mib": "MiB of memory",
        },
    )
    load = Load(tables)
    size = _Size()
    topic = TopicTarget(context.bootstrap, f"debezium-rates-{time.time_ns()}", size.counted)
    context.say("writing the topic")
    write_backlog(load, [topic], records)
    with tempfile.TemporaryDirectory(prefix="binlane-spark-") as temporary:
        folder = Path(temporary)
        context.say("Delta")
        durable, merged, memory = _delta(context.bootstrap, topic.topic, folder / "delta", load, tables)
        context.say("PostgreSQL")
        written, postgres_memory = _postgres(
            context.bootstrap, topic.topic, folder / "postgres", load.truth()
        )
    rows = (
        ("Delta: durable, in the view", durable, memory),
        ("Delta: merged into the tables", merged, memory),
        ("PostgreSQL", written, postgres_memory),
    )
    for target, reached, mib in rows:
        report.row(
            target=target,
            bytes=round(size.bytes / records),
            rate=reached.rate(records),
            rate_with_start=records / reached.seconds,
            mib=reached.rate(records) * size.bytes / records / 2**20,
            cpu_million=reached.cpu / records * 1e6,
            rss_mib=mib,
        )
    report.notes.append(
        "60 % are inserts, 30 % updates and 10 % deletes of rows with 8 columns. One topic with one "
        "partition, one worker, replicas with the handlers' defaults. Records/s count from the assignment of "
        "the partition to the last row in its target. The broker, PostgreSQL (fsync off) and the worker "
        "share the machine. Afterwards every table equals the source. Debezium's tombstones are off."
    )
    return report


class _Size:
    """Count the bytes of the encoded records."""

    def __init__(self) -> None:
        self.bytes = 0

    def counted(self, record: Any) -> tuple[bytes, bytes]:
        key, value = debezium(record)
        self.bytes += len(value)
        return key, value


def _delta(
    bootstrap: str, topic: str, folder: Path, load: Load, tables: int
) -> tuple[Reached, Reached, float]:
    folders = table_folders(folder, tables)
    watch = Watch(folders)
    with _worker(bootstrap, topic, folder, REPLICA) as side:
        reading = side.wait_until_reading()
        durable = reach(side, watch, load.last(), reading, durable=True)
        merged = reach(side, watch, load.last(), reading)
        memory = side.rss_mib()
        side.stop()
    watch.close()
    with reader() as asked:
        if found := differences(asked, folders, load.truth()):
            raise BenchmarkError("\n".join(found))
    return durable, merged, memory


def _postgres(bootstrap: str, topic: str, folder: Path, truth: list[TableTruth]) -> tuple[Reached, float]:
    with closing(PostgresServer()) as server:
        server.start()
        rule = {
            "match": f"{DATABASE}.*",
            "batch": {"max_records": 5_000, "max_wait": "1s"},
            "handlers": [{"type": "sql", "url": server.url}],
        }
        engine = sa.create_engine(server.url)
        with _worker(bootstrap, topic, folder, rule) as side:
            reading = side.wait_until_reading()
            for table, expected in enumerate(truth):
                _wait(side, engine, table_name(table), expected)
            reached = Reached(time.time() - side.started, reading, side.cpu_seconds())
            memory = side.rss_mib()
            side.stop()
        engine.dispose()
    return reached, memory


def _worker(bootstrap: str, topic: str, folder: Path, rule: Mapping[str, Any]) -> Any:
    return binlane(
        bootstrap=bootstrap, topic=topic, folder=folder, tables=[rule], records=RECORDS, group=folder.name
    )


def _wait(side: Side, engine: sa.Engine, table: str, expected: TableTruth) -> None:
    """Wait until the table has its last rows. One table is asked at a time, because a look costs a scan."""
    wanted = (expected.rows, expected.numbers)
    name = f"{DATABASE}.{table}"

    def complete() -> bool:
        with engine.connect() as connection:
            if connection.exec_driver_sql(f"SELECT to_regclass('{name}')").scalar_one() is None:
                return False
            row = connection.exec_driver_sql(f"SELECT count(*), coalesce(sum(n), 0) FROM {name}").one()
        return (row[0], int(row[1])) == wanted

    side.wait(complete, _LIMIT_SECONDS, f"write {name}")
