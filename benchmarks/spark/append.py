"""Changelogs only: a backlog that binlane appends, and the peer in two ways."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.context import Context
from benchmarks.processes import BenchmarkError
from benchmarks.results import Report, at_least
from benchmarks.spark.feed import FileTarget, TopicTarget, write_backlog
from benchmarks.spark.load import Load
from benchmarks.spark.reached import BACKLOG_COLUMNS, Reached, add_row, reach
from benchmarks.spark.reader import reader
from benchmarks.spark.sides import (
    CHANGELOG,
    Side,
    binlane,
    peer,
    peer_batches,
    table_folders,
    ways_of_committing,
)
from benchmarks.spark.watch import Watch

__all__ = ["run"]

_LIMIT_SECONDS = 600
_FILES_AT_ONCE = 50
_WAYS = {"append": "one table each", "append_all": "one table for all"}


def run(context: Context) -> Report:
    """Append the same 500,000 changes of 20 tables. Each side starts cold, without tables."""
    records, tables = context.pick((500_000, 20), (4_000, 2))
    report = Report(
        "spark_changelog",
        f"A backlog of {records:,} changes of {tables} tables appended to changelogs",
        BACKLOG_COLUMNS,
    )
    load = Load(tables)
    with tempfile.TemporaryDirectory(prefix="binlane-spark-") as temporary:
        folder = Path(temporary)
        topic = TopicTarget(context.bootstrap, f"spark-changelog-{time.time_ns()}")
        files = FileTarget(folder / "files")
        write_backlog(load, [topic, files], records)
        last = load.last()
        changelogs: dict[str, dict[int, Path]] = {}
        appended = {}
        for number, (who, rule) in enumerate(ways_of_committing(CHANGELOG).items()):
            own = folder / f"binlane-{number}"
            changelogs[who] = table_folders(own, tables)
            watch = Watch(changelogs[who])
            with binlane(
                bootstrap=context.bootstrap, topic=topic.topic, folder=own, tables=[rule], group=own.name
            ) as side:
                reading = side.wait_until_reading()
                durable = reach(side, watch, last, reading, durable=True)
                appended[who] = reach(side, watch, last, reading)
                side.stop()
            watch.close()
            add_row(report, who, "durable", durable, changes=records)
            add_row(report, who, "in the Delta tables", appended[who], changes=records, commits=watch.merges)
        if context.with_peers:
            best = 0.0
            for mode, way in _WAYS.items():
                with peer(
                    source=files.folder, folder=folder / mode, mode=mode, max_files=_FILES_AT_ONCE
                ) as side:
                    theirs = _append(side, files.files)
                add_row(report, "Structured Streaming", f"in {way}", theirs, changes=records)
                best = max(best, theirs.rate(records))
            report.goals += [
                at_least(best, ours.rate(records), "changes/s", f"{who}: as fast", "Structured Streaming")
                for who, ours in appended.items()
            ]
        with reader() as asked:
            for folders in changelogs.values():
                for path, changes in zip(folders.values(), load.changes(), strict=True):
                    found = asked.ask(
                        f"SELECT count(*), count(DISTINCT _partition, _offset, _index) FROM delta.`{path}`"
                    ).row
                    if found != [changes, changes]:
                        raise BenchmarkError(
                            f"{path}: {found} rows and different ones instead of {changes:,}"
                        )
    report.notes.append("Afterwards each of binlane's changelogs contains every change exactly once.")
    return report


def _append(side: Side, files: int) -> Reached:
    """Wait until the last batch of all `files` ended."""
    reading = side.wait_until_reading()
    batches = -(-files // _FILES_AT_ONCE)
    side.wait(lambda: len(peer_batches(side)) >= batches, _LIMIT_SECONDS, "append the backlog")
    cpu = side.cpu_seconds()
    return Reached(peer_batches(side)[-1]["time"] - side.started, reading, cpu)
