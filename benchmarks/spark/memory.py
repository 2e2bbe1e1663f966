"""Memory of a merge, for tables and Spark heaps of several sizes."""

from __future__ import annotations

import subprocess
import sys
import tempfile

import msgspec

from benchmarks.context import Context
from benchmarks.processes import BenchmarkError, child
from benchmarks.results import Report
from benchmarks.spark.memory_run import MergeFigures

__all__ = ["run"]

_LIMIT_SECONDS = 900
_COLUMNS = {
    "heap": "driver_memory",
    "rows": "Rows",
    "table": "Table MiB",
    "seconds": "Merge s",
    "java": "Java MiB",
    "worker": "Worker's Python MiB",
}


def run(context: Context) -> Report:
    """Measure how much memory a driver needs. There is no peer and no goal."""
    heaps, sizes, changes = context.pick(
        (("512m", "1g", "2g"), (1_000_000, 10_000_000), 50_000), (("1g",), (10_000,), 1_000)
    )
    report = Report("spark_memory", f"A merge of {changes:,} updates spread over one table", _COLUMNS)
    for rows in sizes:
        for heap in heaps:
            context.say(f"a table of {rows:,} rows, heap {heap}")
            _add_row(report, heap, rows, _merged(heap, rows, changes))
    report.notes.append(
        "Each merge runs in its own process, with local[*] and Spark's web UI. Memory is the peak resident "
        "memory that the kernel reports (VmHWM). The worker's Python contains the handler and PySpark, but "
        "no Kafka client and no lanes."
    )
    return report


def _merged(heap: str, rows: int, changes: int) -> MergeFigures | None:
    """Return the figures; None if Spark ran out of memory."""
    with tempfile.TemporaryDirectory(prefix="binlane-spark-") as folder:
        command = [sys.executable, "-m", "benchmarks.spark.memory_run", heap, str(rows), str(changes), folder]
        with child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                output, errors = process.communicate(timeout=_LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                raise BenchmarkError(f"a merge into {rows:,} rows took over {_LIMIT_SECONDS} s") from None
        if process.returncode == 0:
            return msgspec.json.decode(output.splitlines()[-1], type=MergeFigures)
        if b"out of memory" in errors:
            return None
        raise BenchmarkError(f"a merge into {rows:,} rows failed:\n{errors.decode()[-2000:]}")


def _add_row(report: Report, heap: str, rows: int, figures: MergeFigures | None) -> None:
    if figures is None:
        report.row(heap=heap, rows=rows, seconds="out of memory")
        return
    report.row(
        heap=heap,
        rows=rows,
        table=figures.table_bytes / 2**20,
        seconds=figures.seconds,
        java=figures.java_rss_kib / 1024,
        worker=figures.python_rss_kib / 1024,
    )
