"""The peer of the `spark` handler: the Structured Streaming job that people write for the same task.

It does what the guides of Structured Streaming and Delta teach. It reads files of JSON lines with a schema.
`foreachBatch` keeps the last change of each key, once for the whole cached batch. Then it runs one MERGE for
each table, or appends. It sets the same Delta settings for one machine as binlane.

The job is a process. It prints JSON lines that say when it reads and what each batch did. The userMetadata of
each commit is the number of the table's last change in it. This costs nothing, because the job asks for the
batch's tables anyway.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from handlers.spark.runtime.jars import delta_jars
from handlers.spark.runtime.versions import find_java

_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_OTHER_NAMES = {"datetime": "timestamp_ntz", "text": "string"}  # Spark's names of MySQL's types
_BATCH = "latest_of_batch"

Columns = dict[str, str]


def main() -> None:
    arguments = _arguments()
    columns = {
        name: "string" if kind.startswith("varchar") else _OTHER_NAMES.get(kind, kind)
        for name, kind in (pair.split("=", 1) for pair in arguments.column)
    }
    session = _session(arguments)
    write = _MODES[arguments.mode](session, columns, Path(arguments.lake), arguments.threads)

    def each(batch: DataFrame, number: int) -> None:
        begin = time.time()
        rows = write(batch)
        _say("batch", batch=number, rows=rows, began=begin, seconds=time.time() - begin)

    data = ", ".join(f"`{name}`: string" for name in columns)
    stream = (
        session.readStream.schema(
            f"id bigint, `table` string, type string, es bigint, data array<struct<{data}>>"
        )
        .option("maxFilesPerTrigger", arguments.max_files)
        .json(arguments.source)
        .writeStream.option("checkpointLocation", arguments.checkpoint)
        .foreachBatch(each)
    )
    _say("ready", pid=os.getpid())
    stream.start().awaitTermination()


class _Sink:
    """Tables in a folder, written by one or more threads. Each thread has its own session."""

    def __init__(self, session: SparkSession, columns: Columns, lake: Path, threads: int) -> None:
        self.columns = columns
        self._session = session
        self._lake = lake
        self._local = threading.local()
        self._known: set[str] = set()
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="table")

    def session(self) -> SparkSession:
        """The calling thread's session. A commit's userMetadata is a setting of the session."""
        if not hasattr(self._local, "session"):
            self._local.session = self._session.newSession()
        own: SparkSession = self._local.session
        return own

    def path(self, table: str) -> str:
        return str(self._lake / table)

    def typed(self) -> list[Column]:
        """The row's columns, with their types."""
        row = f.col("data")[0]
        return [row[name].cast(kind).alias(name) for name, kind in self.columns.items()]

    def create(self, table: str, columns: Columns) -> None:
        """Create the table, once."""
        if table not in self._known:
            kinds = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
            self.session().conf.unset(_METADATA)
            self.session().sql(f"CREATE TABLE IF NOT EXISTS delta.`{self.path(table)}` ({kinds}) USING delta")
            self._known.add(table)


class _Merge(_Sink):
    """Keep the last change of each key, and run one MERGE for each table."""

    def __call__(self, batch: DataFrame) -> int:
        newest = Window.partitionBy("table", "id").orderBy(f.col("change").desc())
        rows = batch.select("table", "type", f.col("id").alias("change"), *self.typed())
        latest = rows.withColumn("rank", f.row_number().over(newest)).where("rank = 1").drop("rank").persist()
        try:
            found = latest.groupBy("table").agg(f.max("change").alias("last"), f.count("*").alias("rows"))
            tables = found.collect()
            latest.createOrReplaceGlobalTempView(_BATCH)
            list(self.pool.map(lambda row: self._merge(row["table"], row["last"]), tables))
        finally:
            latest.unpersist()
        return sum(row["rows"] for row in tables)

    def _merge(self, table: str, last: int) -> None:
        self.create(table, self.columns)
        session = self.session()
        session.conf.set(_METADATA, str(last))
        names = ", ".join(f"`{name}`" for name in self.columns)
        session.sql(
            f"MERGE INTO delta.`{self.path(table)}` t USING "
            f"(SELECT type, {names} FROM global_temp.{_BATCH} WHERE `table` = '{table}') s ON t.id = s.id "
            "WHEN MATCHED AND s.type = 'DELETE' THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET * "
            "WHEN NOT MATCHED AND s.type <> 'DELETE' THEN INSERT *"
        )


class _AppendEach(_Sink):
    """Append every change to its table's changelog. The parsed batch is cached and read once a table."""

    def __call__(self, batch: DataFrame) -> int:
        rows = batch.select("table", "type", "es", f.col("id").alias("change"), *self.typed()).persist()
        try:
            found = rows.groupBy("table").agg(f.max("change").alias("last"), f.count("*").alias("rows"))
            tables = found.collect()
            rows.createOrReplaceGlobalTempView(_BATCH)
            list(self.pool.map(lambda row: self._append(row["table"], row["last"]), tables))
        finally:
            rows.unpersist()
        return sum(row["rows"] for row in tables)

    def _append(self, table: str, last: int) -> None:
        session = self.session()
        rows = session.sql(f"SELECT * FROM global_temp.{_BATCH} WHERE `table` = '{table}'").drop("table")
        rows.write.format("delta").mode("append").option("userMetadata", str(last)).save(self.path(table))


class _AppendAll(_Sink):
    """Append every parsed change to one table: the least that a job can do."""

    def __call__(self, batch: DataFrame) -> int:
        rows = batch.select("table", "type", "es", f.col("id").alias("change"), *self.typed())
        rows.write.format("delta").mode("append").save(self.path("all"))
        return 0


_MODES: dict[str, type[_Merge | _AppendEach | _AppendAll]] = {
    "replica": _Merge,
    "append": _AppendEach,
    "append_all": _AppendAll,
}


def _session(arguments: argparse.Namespace) -> SparkSession:
    os.environ["JAVA_HOME"] = str(find_java().home)
    conf = {
        "spark.driver.memory": arguments.heap,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.jars": ",".join(map(str, delta_jars())),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": arguments.lake,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.properties.defaults.feature.timestampNtz": "supported",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        **dict(pair.split("=", 1) for pair in arguments.conf),
    }
    builder = SparkSession.builder.master(arguments.master).appName("structured-streaming")
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _say(event: str, **figures: float) -> None:
    print(json.dumps({"event": event, "time": time.time(), **figures}), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--source", required=True, help="the folder of JSON lines")
    parser.add_argument("--lake", required=True, help="the folder of the tables")
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--mode", choices=_MODES, default="replica")
    parser.add_argument("--column", action="append", required=True, help="name=MySQL type")
    parser.add_argument("--max-files", type=int, default=50, help="of one batch")
    parser.add_argument("--threads", type=int, default=1, help="tables written side by side")
    parser.add_argument("--heap", default="2g")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--conf", action="append", default=[], help="name=value of Spark's")
    return parser.parse_args()


if __name__ == "__main__":
    main()
