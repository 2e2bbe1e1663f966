"""`python -m benchmarks.spark.views_run ROWS SEGMENTS CHANGES TURNS FOLDER`: one table and its log, queried
in turns by the view and without it, in a process with its own Spark.

The last line of output has the ViewFigures by query, as JSON.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import psutil
import pyarrow as pa
from pyspark.sql import SparkSession

from handlers.spark.log.marks import Marks
from handlers.spark.log.segments import SegmentLog
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.options import SparkSection
from handlers.spark.read.current import columns_of
from handlers.spark.read.view import view_sql
from handlers.spark.rows.shape import Shape, log_schema
from handlers.spark.runtime.session import acquire, release
from handlers.spark.table_ref import TableRef, quoted

__all__ = ["QUERIES", "ViewFigures", "main"]

QUERIES: Mapping[str, str] = {
    "count and sum": "SELECT count(*), sum(price) FROM {source}",
    "all columns": "SELECT count(*), sum(customer), sum(price), max(name), max(note), max(n) FROM {source}",
    "a row by its key": "SELECT * FROM {source} WHERE id = 77",
}
"""The goal is about the first query."""
_SHAPE = Shape(
    pa.schema(
        {
            "id": pa.int64(),
            "customer": pa.int64(),
            "price": pa.int32(),
            "name": pa.string(),
            "note": pa.string(),
            "n": pa.int64(),
        }
    ),
    ("id",),
)


class ViewFigures(msgspec.Struct, frozen=True):
    """Seconds of one query: elapsed, and CPU of the Java process."""

    view: float
    table: float
    view_cpu: float
    table_cpu: float


def main(rows: int, segments: int, changes: int, turns: int, folder: Path) -> dict[str, ViewFigures]:
    """Return for each query the least of `turns`."""
    section = SparkSection.model_validate({"driver_memory": "2g", "ui": False, "warehouse": str(folder)})
    session = acquire(section, folder, "views").session
    try:
        ref = TableRef(f"delta.{quoted(f'{folder}/t')}", f"{folder}/t", f"{folder}/_binlane/t/pending")
        session.sql(
            f"CREATE TABLE {ref.sql} USING delta AS SELECT id, id % 1000 AS customer, "
            f"int(id % 977) AS price, sha2(string(id), 256) AS name, concat('note ', id) AS note, id AS n "
            f"FROM range({rows})"
        )
        _put(ref, rows, segments, changes)
        columns = columns_of(session, ref)
        view = f"({view_sql(ref, _SHAPE, mode='replica', columns=columns)})"
        return {name: _by_turns(session, sql, view, ref.sql, turns) for name, sql in QUERIES.items()}
    finally:
        release()


def _put(ref: TableRef, rows: int, segments: int, changes: int) -> None:
    """Changes of keys from the whole table. Some rows are new, some deleted."""
    chosen = random.Random(7)
    schema = log_schema(_SHAPE, mode="replica", prefix="_")
    log = SegmentLog(LocalFiles(), ref.log_folder)
    log.load()
    for _ in range(segments):
        made = [
            {
                "_op": "delete" if key % 7 == 0 else "upsert",
                "id": key,
                "customer": key % 1000,
                "price": 1,
                "name": "changed",
                "note": "-",
                "n": key,
            }
            for key in chosen.sample(range(rows + rows // 100), changes)
        ]
        log.append(pa.Table.from_pylist(made, schema=schema), Marks(), key=_SHAPE.key, partial=False)


def _by_turns(session: SparkSession, sql: str, view: str, table: str, turns: int) -> ViewFigures:
    [java] = [each for each in psutil.Process().children(recursive=True) if each.name() == "java"]
    least = {view: (float("inf"), float("inf")), table: (float("inf"), float("inf"))}
    for turn in range(2 * turns):
        for source, (seconds, cpu) in least.items():
            before, began = java.cpu_times(), time.monotonic()
            session.sql(sql.format(source=source)).collect()
            took, after = time.monotonic() - began, java.cpu_times()
            used = after.user + after.system - before.user - before.system
            if turn >= turns:
                least[source] = (min(seconds, took), min(cpu, used))
    return ViewFigures(least[view][0], least[table][0], least[view][1], least[table][1])


if __name__ == "__main__":
    print(msgspec.json.encode(main(*map(int, sys.argv[1:5]), Path(sys.argv[5]))).decode(), flush=True)
