"""The cost of a query by a view while changes wait, compared with the merged table."""

from __future__ import annotations

import subprocess
import sys
import tempfile

import msgspec

from benchmarks.context import Context
from benchmarks.processes import BenchmarkError, child
from benchmarks.results import Report, at_most
from benchmarks.spark.views_run import QUERIES, ViewFigures

__all__ = ["run"]

_LIMIT_SECONDS = 1200
_MOST = 2.0
_COLUMNS = {
    "rows": "Rows",
    "query": "Query",
    "view": "View s",
    "table": "Table s",
    "ratio": "ratio",
    "view_cpu": "View CPU s",
    "table_cpu": "Table CPU s",
    "cpu_ratio": "CPU ratio",
}


def run(context: Context) -> Report:
    """Query a small table, and one of a million rows."""
    sizes = context.pick((20_000, 1_000_000), (1_000,))
    segments, changes = context.pick((40, 100), (3, 10))
    turns = context.pick(12, 1)
    report = Report(
        "spark_views",
        f"Queries while {segments * changes:,} changes in {segments} segments wait for their merge",
        _COLUMNS,
    )
    for rows in sizes:
        context.say(f"a table of {rows:,} rows")
        for name, figures in _figures(rows, segments, changes, turns).items():
            ratio, cpu_ratio = figures.view / figures.table, figures.view_cpu / max(figures.table_cpu, 0.01)
            report.row(
                rows=rows, query=name, ratio=ratio, cpu_ratio=cpu_ratio, **msgspec.structs.asdict(figures)
            )
            if name == next(iter(QUERIES)):
                peer = "the merged table"
                report.goals.append(at_most(_MOST, ratio, "times", f"{name}, {rows:,} rows", peer))
    report.notes.append(
        "View and table take turns in one warm process (local[2], 2 GiB). The figures are the fastest of "
        f"{turns} runs, after {turns} runs to warm up. CPU is the whole Java process's."
    )
    return report


def _figures(rows: int, segments: int, changes: int, turns: int) -> dict[str, ViewFigures]:
    """Return the figures by query."""
    with tempfile.TemporaryDirectory(prefix="binlane-views-") as folder:
        numbers = map(str, (rows, segments, changes, turns))
        command = [sys.executable, "-m", "benchmarks.spark.views_run", *numbers, folder]
        with child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                output, errors = process.communicate(timeout=_LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                raise BenchmarkError(f"views of {rows:,} rows took over {_LIMIT_SECONDS} s") from None
    if process.returncode != 0:
        raise BenchmarkError(f"views of {rows:,} rows failed:\n{errors.decode()[-2000:]}")
    return msgspec.json.decode(output.splitlines()[-1], type=dict[str, ViewFigures])
