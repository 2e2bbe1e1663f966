"""`python -m benchmarks.spark.memory_run HEAP ROWS CHANGES FOLDER`: one table and one merge into it, in a
process with its own Spark.

The last line of output is a MergeFigures as JSON. If the heap is too small, it ends with the handler's error.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil
from pyspark.sql import SparkSession

from benchmarks.processes import peak_rss_kib
from handlers.spark import SparkHandler
from handlers.testing import make_batch, opened

__all__ = ["MergeFigures", "main"]

_TYPES = {"id": "bigint", "customer": "bigint", "total": "decimal(12,2)", "note": "varchar(200)"}
_PATIENCE = 600.0
"""Seconds that a merge may take."""


class MergeFigures(msgspec.Struct, frozen=True):
    """Figures of the merge. Memory is the peak of the whole process since its start."""

    seconds: float
    table_bytes: int
    java_rss_kib: int
    python_rss_kib: int


def main(heap: str, rows: int, changes: int, folder: Path) -> MergeFigures:
    """Merge `changes` updates, spread over the whole table, into a replica of `rows` rows of about 100 B.

    Raises the error that ended the merge."""
    handler = SparkHandler(mode="replica", path="lake/{table}", merge={"max_age": "0s", "at_close": "0s"})
    with opened(handler, folder, spark={"driver_memory": heap}, stop_worker=_end):
        _merge(handler, [_row(number) for number in range(10)], 0)
        path = folder / "lake" / "orders"
        spark = SparkSession.builder.getOrCreate()
        spark.sql(
            f"INSERT INTO delta.`{path}` SELECT id, id % 1000, cast(id % 10000000 AS decimal(12,2)), "
            f"sha2(cast(id AS string), 256) FROM range(10, {rows})"
        )
        step = rows // changes
        updates = [
            {"before": _row(number), "after": _row(number, note="changed"), "source_time_ms": 2}
            for number in range(0, step * changes, step)
        ]
        seconds = _merge(handler, updates, 100)
        counted = spark.sql(f"SELECT count(*), count_if(note = 'changed') FROM delta.`{path}`").first()
        if counted is None or tuple(counted) != (rows, changes):
            raise RuntimeError(f"{counted} rows and changed ones instead of {rows:,} and {changes:,}")
        detail = spark.sql(f"DESCRIBE DETAIL delta.`{path}`").first()
        assert detail is not None  # a table that is there has one row
        [java] = psutil.Process().children()
        return MergeFigures(seconds, detail["sizeInBytes"], peak_rss_kib(java.pid), peak_rss_kib(os.getpid()))


def _row(number: int, note: str = "-") -> dict[str, Any]:
    return {"id": number, "customer": number % 1000, "total": number % 10_000_000, "note": note}


def _merge(handler: SparkHandler, changes: list[dict[str, Any]], offset: int) -> float:
    """Return the seconds until all changes are in the table."""
    begin = time.monotonic()
    handler.handle(make_batch("shop.orders", changes, key="id", types=_TYPES, offset=offset))
    while any(table["waiting_rows"] for table in handler.status()["tables"]):
        if time.monotonic() > begin + _PATIENCE:
            raise TimeoutError(f"not merged after {_PATIENCE:.0f} s")
        time.sleep(0.05)
    return time.monotonic() - begin


def _end(error: BaseException) -> None:
    """End the process. A background thread calls this if nothing can be merged any more."""
    print(error, file=sys.stderr, flush=True)
    os._exit(1)


if __name__ == "__main__":
    figures = main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
    print(msgspec.json.encode(figures).decode(), flush=True)
