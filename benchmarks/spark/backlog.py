"""The time until a backlog is in the tables, for binlane's replicas and the peer's MERGE."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.context import Context
from benchmarks.processes import BenchmarkError
from benchmarks.results import Report, at_least
from benchmarks.spark.feed import FileTarget, TopicTarget, write_backlog
from benchmarks.spark.load import Load
from benchmarks.spark.reached import BACKLOG_COLUMNS, add_row, reach
from benchmarks.spark.reader import differences, reader
from benchmarks.spark.sides import REPLICA, binlane, peer, table_folders, ways_of_committing
from benchmarks.spark.watch import Watch

__all__ = ["run"]

_FASTER = (12, 8)
"""Times the peer's rate: as `ways_of_committing`."""
_FILES_AT_ONCE = 50
"""Files of 2,000 changes, so batches of 100,000."""


def run(context: Context) -> Report:
    """Write 500,000 waiting changes into 20 tables. Each side starts cold, with empty tables."""
    records, tables = context.pick((500_000, 20), (4_000, 2))
    report = Report(
        "spark_backlog",
        f"A backlog of {records:,} changes of {tables} tables into Delta replicas",
        BACKLOG_COLUMNS,
    )
    load = Load(tables)
    with tempfile.TemporaryDirectory(prefix="binlane-spark-") as temporary:
        folder = Path(temporary)
        topic = TopicTarget(context.bootstrap, f"spark-backlog-{time.time_ns()}")
        files = FileTarget(folder / "files")
        write_backlog(load, [topic, files], records)
        last = load.last()
        replicas: dict[str, dict[int, Path]] = {}
        merged = {}
        for number, (who, rule) in enumerate(ways_of_committing(REPLICA).items()):
            own = folder / f"binlane-{number}"
            replicas[who] = table_folders(own, tables)
            watch = Watch(replicas[who])
            with binlane(
                bootstrap=context.bootstrap, topic=topic.topic, folder=own, tables=[rule], group=own.name
            ) as side:
                reading = side.wait_until_reading()
                durable = reach(side, watch, last, reading, durable=True)
                merged[who] = reach(side, watch, last, reading)
                side.stop()
            watch.close()
            add_row(report, who, "queryable by the view", durable, changes=records)
            add_row(report, who, "merged", merged[who], changes=records, commits=watch.merges)

        if context.with_peers:
            name = "Structured Streaming"
            replicas[name] = table_folders(folder / "peer", tables)
            watch = Watch(replicas[name])
            with peer(source=files.folder, folder=folder / "peer", max_files=_FILES_AT_ONCE) as side:
                theirs = reach(side, watch, last, side.wait_until_reading())
            watch.close()
            add_row(report, name, "merged", theirs, changes=records, commits=watch.merges)
            rate = theirs.rate(records)
            report.goals += [
                at_least(times * rate, ours.rate(records), "changes/s", f"{who}, merged: {times} times", name)
                for times, (who, ours) in zip(_FASTER, merged.items(), strict=True)
            ]
        truth = load.truth()
        with reader() as asked:
            for who, folders in replicas.items():
                if found := differences(asked, folders, truth):
                    raise BenchmarkError(f"{who}: " + "\n".join(found))
    report.notes.append(
        "Changes/s count from the moment that the job reads (Spark is up); `with the start`, from the "
        "start of its process. Both jobs start cold. CPU is that of the process and its JVM, with the "
        "start. Afterwards every table of both jobs equals the source."
    )
    return report
