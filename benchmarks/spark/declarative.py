"""AUTO CDC of Spark Declarative Pipelines beside Structured Streaming and binlane: rate and freshness."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.context import Context
from benchmarks.processes import BenchmarkError
from benchmarks.results import Report
from benchmarks.spark.feed import FileTarget, SteadyFeed, TableFilesTarget, Target, TopicTarget, write_backlog
from benchmarks.spark.freshness import measure
from benchmarks.spark.lines import user_lines
from benchmarks.spark.load import Load, table_name
from benchmarks.spark.reached import reach
from benchmarks.spark.reader import Reader, differences, reader
from benchmarks.spark.sides import (
    REPLICA,
    Side,
    auto_cdc,
    auto_cdc_checkpoints,
    auto_cdc_folders,
    binlane,
    peer,
    table_folders,
)
from benchmarks.spark.steady import Pace, observe
from benchmarks.spark.watch import CHECKPOINTS, DELTA, Commits, Watch

__all__ = ["run"]


@dataclass(frozen=True)
class _Way:
    """One side in one folder, ready to run."""

    target: Target
    watched: Mapping[int, Path]
    commits: Commits
    folders: Mapping[int, Path]
    start: Callable[[], AbstractContextManager[Side]]


def run(context: Context) -> Report:
    """A backlog, then a steady load, on each side in turn. Both start cold, with empty tables."""
    records, tables = context.pick((200_000, 10), (2_000, 2))
    pace = context.pick(Pace(1_000, 30, 90, 240), Pace(50, 5, 10, 300))
    report = Report(
        "auto_cdc",
        f"AUTO CDC: a backlog of {records:,} changes of {tables} tables, and {pace.rate:,} changes/s for "
        f"{pace.seconds:.0f} s, into Delta replicas",
        {
            "who": "Job",
            "rate": "Backlog: changes/s",
            "rate_with_start": "with the start",
            "cpu_million": "CPU s per million",
            "p50": "Steady: p50 s",
            "p95": "p95 s",
            "cpu": "CPU s a second",
            "rss_mib": "MiB",
            "unseen": "Never visible",
            "lines": "Lines of the user",
        },
    )
    ways: dict[str, Callable[[Path], _Way]] = {"binlane": lambda folder: _binlane(context, folder, tables)}
    if context.with_peers:
        ways["Structured Streaming"] = lambda folder: _streaming(folder, tables)
        ways["AUTO CDC"] = lambda folder: _auto_cdc(folder, tables)
    lines = user_lines()
    with tempfile.TemporaryDirectory(prefix="binlane-spark-") as temporary, reader() as asked:
        for who, way in ways.items():
            folder = Path(temporary, who.replace(" ", "-"))
            context.say(f"{who}: backlog")
            backlog = _backlog(way(folder / "backlog"), records, tables, asked)
            context.say(f"{who}: steady load")
            steady = _steady(way(folder / "steady"), pace, tables, asked)
            report.row(who=who, **backlog, **steady, lines=lines[who])
    report.notes += [
        "Backlog: changes/s count from the moment that the job reads; CPU contains the start. Steady: "
        "seconds from the source's commit until the Delta commit with the change (of AUTO CDC: until its "
        "checkpoint says so, right after the commit). Afterwards every table equals the source.",
        "Spark 4.2.0's AUTO CDC refuses Delta tables. A catalog that claims SupportsRowLevelOperations for "
        "them passes the check (MergeableDeltaCatalog.java). binlane reads Kafka, the two others read files. "
        "AUTO CDC has a folder for each table, as if each had a topic. Its pipeline runs again as soon as it "
        "has ended.",
    ]
    return report


def _binlane(context: Context, folder: Path, tables: int) -> _Way:
    topic = TopicTarget(context.bootstrap, f"auto-cdc-{time.time_ns()}")
    folders = table_folders(folder, tables)
    return _Way(
        topic,
        folders,
        DELTA,
        folders,
        lambda: binlane(
            bootstrap=context.bootstrap,
            topic=topic.topic,
            folder=folder,
            tables=[REPLICA],
        ),
    )


def _streaming(folder: Path, tables: int) -> _Way:
    files = FileTarget(folder / "files")
    folders = table_folders(folder, tables)
    return _Way(
        files, folders, DELTA, folders, lambda: peer(source=files.folder, folder=folder, max_files=200)
    )


def _auto_cdc(folder: Path, tables: int) -> _Way:
    names = [table_name(table) for table in range(tables)]
    files = TableFilesTarget(folder / "files", names)
    return _Way(
        files,
        auto_cdc_checkpoints(folder, names),
        CHECKPOINTS,
        auto_cdc_folders(folder, names),
        lambda: auto_cdc(source=files.folder, folder=folder, tables=names),
    )


def _backlog(way: _Way, records: int, tables: int, asked: Reader) -> dict[str, float]:
    load = Load(tables)
    write_backlog(load, [way.target], records)
    watch = Watch(way.watched, way.commits)
    with way.start() as side:
        reached = reach(side, watch, load.last(), side.wait_until_reading())
    watch.close()
    _judge(asked, way.folders, load)
    return {
        "rate": reached.rate(records),
        "rate_with_start": records / reached.seconds,
        "cpu_million": reached.cpu / records * 1e6,
    }


def _steady(way: _Way, pace: Pace, tables: int, asked: Reader) -> dict[str, float]:
    load = Load(tables)
    watch = Watch(way.watched, way.commits)
    feed = SteadyFeed(load, way.target, pace.rate)
    with way.start() as side:
        side.wait_until_reading()
        observed = observe(side, feed, watch, pace)
    watch.close()
    if observed.merged:
        _judge(asked, way.folders, load)
    freshness = measure(feed, watch.merged, observed.window, observed.end_ms)
    return {
        "p50": freshness.at(0.5),
        "p95": freshness.at(0.95),
        "cpu": observed.cpu_seconds / pace.seconds,
        "rss_mib": observed.rss_mib,
        "unseen": freshness.unseen,
    }


def _judge(asked: Reader, folders: Mapping[int, Path], load: Load) -> None:
    if found := differences(asked, folders, load.truth()):
        raise BenchmarkError("\n".join(found))
