"""A Spark with Iceberg's own jar, in a process of its own: another engine over the same catalog.

    python iceberg_spark.py CATALOG_FILE WAREHOUSE JAR ...

Each line of its input is a statement. Each line of its output has the rows."""

from __future__ import annotations

import base64
import pickle
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["COORDINATES", "VERSION", "IcebergSpark"]

VERSION = ".".join(metadata.version("pyspark").split(".")[:2])
_ICEBERG = "1.11.0"
COORDINATES = (
    f"org.apache.iceberg:iceberg-spark-runtime-{VERSION}_2.13:{_ICEBERG}",
    "org.xerial:sqlite-jdbc:3.50.3.0",
)
_BEGIN = "rows: "


class IcebergSpark:
    """Reads and writes the tables of one SQL catalog in SQLite."""

    def __init__(self, catalog: Path, warehouse: Path, jars: list[Path]) -> None:
        command = [sys.executable, __file__, *map(str, (catalog, warehouse, *jars))]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, encoding="utf-8")

    def sql(self, statement: str) -> list[dict[str, Any]]:
        """Raises RuntimeError with what Spark says."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(statement.split()) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(_BEGIN):
                found = pickle.loads(base64.b64decode(line.removeprefix(_BEGIN)))
                if isinstance(found, str):
                    raise RuntimeError(found)
                return sorted(found, key=repr)
        raise RuntimeError("Spark has ended")

    def stop(self) -> None:
        self._process.communicate()


def _serve(catalog: str, warehouse: str, jars: list[str]) -> None:
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars": ",".join(jars),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.default": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.default.type": "jdbc",
        "spark.sql.catalog.default.uri": f"jdbc:sqlite:{catalog}",
        "spark.sql.catalog.default.jdbc.schema-version": "V1",
        "spark.sql.catalog.default.warehouse": warehouse,
        "spark.sql.catalog.default.cache-enabled": "false",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    for line in sys.stdin:
        try:
            found: Any = session.sql(line).toArrow().to_pylist()
        except Exception as error:
            found = str(error)[:3000]
        sys.stdout.write(f"{_BEGIN}{base64.b64encode(pickle.dumps(found)).decode()}\n")
        sys.stdout.flush()
    session.stop()


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2], sys.argv[3:])
