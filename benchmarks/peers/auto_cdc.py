"""AUTO CDC of Spark Declarative Pipelines as a peer: a Connect server, and one update after the other.

Open source Spark runs a pipeline until all that waits is handled, and ends. So the process starts the next
update at once, in the same server. It prints JSON lines that say when it reads and when each update ended.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from pyspark.errors import PySparkException
from pyspark.pipelines import cli
from pyspark.sql import SparkSession

from benchmarks.processes import child
from handlers.spark.runtime.jars import delta_jars, spark_jars_folder
from handlers.spark.runtime.versions import find_java
from worker.local.broker_settings import free_port

_HOST = "127.0.0.1"
_START_SECONDS = 120
_DATABASE = "shop"
_OTHER_NAMES = {"datetime": "timestamp_ntz", "text": "string"}  # Spark's names of MySQL's types


def main() -> None:
    arguments = _arguments()
    folder = Path(arguments.folder)
    spec = _pipeline(folder, arguments)
    port = free_port()
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ["SPARK_HOME"] = str(spark_jars_folder().parent)
    log_path = folder / "connect.log"
    with log_path.open("wb") as log, child(_server(arguments, port), stdout=log, stderr=log) as server:
        _wait_for(server, port, log_path)
        os.environ["SPARK_REMOTE"] = f"sc://{_HOST}:{port}"  # not earlier: SparkSubmit would refuse it
        session = SparkSession.builder.getOrCreate()
        session.sql(f"CREATE DATABASE IF NOT EXISTS {_DATABASE}")
        session.stop()
        _say("ready", pid=server.pid)
        while True:
            begin = time.time()
            try:
                cli.run(spec, full_refresh=[], full_refresh_all=False, refresh=[], dry=False)
            except PySparkException as error:
                _say("failed", message=str(error))
                raise SystemExit(1) from None
            _say("update", began=begin, seconds=time.time() - begin)


def _pipeline(folder: Path, arguments: argparse.Namespace) -> Path:
    """Write the pipeline into the folder. Return its specification."""
    flows = folder / "pipeline" / "flows"
    flows.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(__file__).with_name("auto_cdc_flows.py"), flows)
    spec = flows.parent / "spark-pipeline.yml"
    spec.write_text(
        f"name: auto_cdc\nstorage: file://{folder}/storage\ndatabase: {_DATABASE}\n"
        "libraries:\n  - glob:\n      include: flows/**\n",
        encoding="utf-8",
    )
    kinds = dict(pair.split("=", 1) for pair in arguments.column)
    columns = {
        name: "string" if kind.startswith("varchar") else _OTHER_NAMES.get(kind, kind)
        for name, kind in kinds.items()
    }
    told = {"source": arguments.source, "tables": arguments.table, "columns": columns}
    os.environ["AUTO_CDC"] = json.dumps(told)
    return spec


def _server(arguments: argparse.Namespace, port: int) -> list[str]:
    jars = [*arguments.classes, *map(str, delta_jars())]
    conf = {
        "spark.driver.memory": arguments.heap,
        "spark.driver.host": _HOST,
        "spark.driver.bindAddress": _HOST,
        "spark.driver.extraClassPath": ":".join(jars),
        "spark.connect.grpc.binding.address": _HOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": arguments.catalog,
        # If the table's definition names the format, its second update fails: DELTA_CANNOT_CHANGE_PROVIDER.
        "spark.sql.sources.default": "delta",
        "spark.sql.warehouse.dir": f"{arguments.folder}/lake",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.properties.defaults.feature.timestampNtz": "supported",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
    }
    return [
        str(spark_jars_folder().parent / "bin" / "spark-class"),
        *("org.apache.spark.deploy.SparkSubmit", "--master", "local[2]"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *(part for name, value in conf.items() for part in ("--conf", f"{name}={value}")),
        "spark-internal",
    ]


def _wait_for(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not _listens(port):
        if server.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(
                f"the Connect server does not listen:\n{log.read_text(errors='replace')[-3000:]}"
            )
        time.sleep(0.1)


def _listens(port: int) -> bool:
    try:
        socket.create_connection((_HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def _say(event: str, **figures: float | str) -> None:
    print(json.dumps({"event": event, "time": time.time(), **figures}), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--source", required=True, help="with a folder of JSON lines for each table")
    parser.add_argument("--folder", required=True, help="of the lake, the pipeline and its checkpoints")
    parser.add_argument("--table", action="append", required=True)
    parser.add_argument("--column", action="append", required=True, help="name=MySQL type")
    parser.add_argument("--catalog", default="org.apache.spark.sql.delta.catalog.DeltaCatalog")
    parser.add_argument("--classes", action="append", default=[], help="folder of the catalog's classes")
    parser.add_argument("--heap", default="2g")
    return parser.parse_args()


if __name__ == "__main__":
    main()
