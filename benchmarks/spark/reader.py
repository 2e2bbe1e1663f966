"""Another program that queries both sides' tables, with its own Spark.

`python -m benchmarks.spark.reader FOLDER HEAP` reads statements from standard input, one JSON text a
line. It answers with their first row and their seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from benchmarks.processes import BenchmarkError, child
from benchmarks.spark.load import CHECKSUM, COLUMNS, TableTruth
from benchmarks.spark.watch import pending
from handlers.spark.read.view import view_sql
from handlers.spark.rows.shape import Shape
from handlers.spark.table_ref import TableRef

__all__ = ["Answer", "Reader", "delta", "differences", "is_there", "reader", "summary", "view"]

_ROOT = Path(__file__).parents[2]


class Answer(NamedTuple):
    row: list[Any]
    seconds: float


class Reader:
    """Answer statements. Any thread may ask. One statement runs at a time."""

    def __init__(self, process: subprocess.Popen[bytes], errors: Path) -> None:
        self._process = process
        self._errors = errors
        self._asking = threading.Lock()  # the two pipes: an answer follows its question

    def ask(self, sql: str) -> Answer:
        """Return the first row. Raises BenchmarkError with Spark's message if the statement fails."""
        with self._asking:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(sql).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            raise BenchmarkError(f"the reader ended:\n{self._errors.read_text(errors='replace')[-3000:]}")
        told = json.loads(line)
        if "error" in told:
            raise BenchmarkError(f"{sql}\nfailed: {told['error']}")
        return Answer(told["row"], told["seconds"])


@contextmanager
def reader(heap: str = "1g") -> Iterator[Reader]:
    """Start a warm reader, and end it at the end."""
    search = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory(prefix="binlane-reader-") as temporary:
        errors_path = Path(temporary, "errors")
        command = [sys.executable, "-m", "benchmarks.spark.reader", temporary, heap]
        with (
            errors_path.open("wb") as errors,
            child(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                environment={"PYTHONPATH": search},
            ) as process,
        ):
            asked = Reader(process, errors_path)
            asked.ask("SELECT 1")
            yield asked


def summary(source: str) -> str:
    """Return the statement whose first row `differences` needs of a table or view."""
    return f"SELECT count(*), {CHECKSUM}, max(n) FROM {source}"


def is_there(folder: Path) -> bool:
    """Return whether the Delta table has its first commit."""
    return (folder / "_delta_log" / f"{0:020d}.json").exists()


def delta(folder: Path) -> str:
    """Return the Delta table for a statement's FROM."""
    return f"delta.`{folder}`"


def view(folder: Path) -> str:
    """Return binlane's view of the table and its segments, for a statement's FROM."""
    schema = pa.schema([(name, pa.null()) for name in COLUMNS])
    columns = dict.fromkeys(COLUMNS, ()) if is_there(folder) else None
    ref = TableRef(delta(folder), str(folder), str(pending(folder)), "")
    return f"({view_sql(ref, Shape(schema, ('id',)), mode='replica', columns=columns)})"


def differences(asked: Reader, folders: Mapping[int, Path], truth: Sequence[TableTruth]) -> list[str]:
    """Describe each Delta table that differs from its source; empty if all are equal."""
    found = []
    for table, folder in folders.items():
        rows, checksum, _ = asked.ask(summary(delta(folder))).row
        expected = truth[table]
        if (rows, checksum or 0) != (expected.rows, expected.checksum):
            found.append(f"{folder}: {rows:,} rows instead of {expected.rows:,}, or other values")
    return found


def _main(folder: Path, heap: str) -> None:
    # Only the answering process needs Spark.
    from pyspark import SparkConf  # noqa: PLC0415 (see above)
    from pyspark.sql import SparkSession  # noqa: PLC0415

    from handlers.spark.options import SparkSection  # noqa: PLC0415
    from handlers.spark.runtime.conf import spark_conf  # noqa: PLC0415
    from handlers.spark.runtime.versions import find_java  # noqa: PLC0415

    os.environ["JAVA_HOME"] = str(find_java().home)
    section = SparkSection.model_validate(
        {"master": "local[1]", "driver_memory": heap, "ui": False, "warehouse": str(folder)}
    )
    conf = SparkConf(loadDefaults=False).setAll(list(spark_conf(section, folder, "reader").items()))
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    for line in sys.stdin:
        begin = time.monotonic()
        try:
            row = session.sql(json.loads(line)).first()
            told: dict[str, Any] = {"row": list(row) if row else [], "seconds": time.monotonic() - begin}
        except Exception as error:
            told = {"error": str(error)[:2000]}
        print(json.dumps(told, default=str), flush=True)


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2])
