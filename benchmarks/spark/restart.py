"""Rows lost or repeated after kill -9 of the worker and of Spark while they write, at a steady load."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.context import Context
from benchmarks.results import Report, at_most
from benchmarks.spark.feed import SteadyFeed, TopicTarget
from benchmarks.spark.load import DATABASE, Load, table_name
from benchmarks.spark.reader import Reader, differences, reader
from benchmarks.spark.sides import CHANGELOG, REPLICA, Side, binlane, table_folders
from benchmarks.spark.watch import Watch

__all__ = ["run"]

_USUAL_MS = 5_000
"""Caught up: every change older than this can be queried."""
_LIMIT_SECONDS = 600


@dataclass(frozen=True)
class _Kill:
    time: float
    """Seconds since 1970."""
    last: list[int]
    """The last change of each table at that time."""


def run(context: Context) -> Report:
    """Kill at random moments. Half of the tables are replicas, half changelogs."""
    rate, tables, kills, between = context.pick((2_000, 20, 3, 15.0), (200, 2, 1, 3.0))
    report = Report(
        "spark_crash",
        f"kill -9 at {rate:,} changes/s of {tables} tables, half replicas and half changelogs",
        {
            "kill": "Kill",
            "reading": "s until it reads again",
            "caught_up": "until the view is up to date",
            "merged": "until all earlier changes are merged",
        },
    )
    changelogs = range(1, tables, 2)
    sections = [*({**CHANGELOG, "match": f"{DATABASE}.{table_name(t)}"} for t in changelogs), REPLICA]
    moments = random.Random(7)
    load = Load(tables)
    with tempfile.TemporaryDirectory(prefix="binlane-spark-") as temporary:
        folder = Path(temporary)
        folders = table_folders(folder, tables)
        topic = TopicTarget(context.bootstrap, f"spark-crash-{time.time_ns()}")
        feed = SteadyFeed(load, topic, rate)
        feed.start()
        watch = Watch(folders)
        killed: _Kill | None = None
        for left in range(kills, -1, -1):
            with binlane(
                bootstrap=context.bootstrap, topic=topic.topic, folder=folder, tables=sections
            ) as side:
                if killed is not None:
                    _row(report, kills - left, killed, side=side, feed=feed, watch=watch)
                else:
                    side.wait_until_reading()
                if left:
                    _live(side, feed, between * (1 + moments.random()))
                    killed = _Kill(time.time(), load.last())
                    side.kill()
                else:
                    feed.stop()
                    last = load.last()
                    side.wait(watch.showing(last), _LIMIT_SECONDS, "merge the rest")
                    side.stop()
        watch.close()
        with reader() as asked:
            replicas = {t: path for t, path in folders.items() if t not in changelogs}
            wrong = differences(asked, replicas, load.truth())
            lost, repeated = _changelogs(asked, {t: folders[t] for t in changelogs}, feed.tables)
    report.goals += [
        at_most(0, len(wrong), "tables", "replicas that differ from the source"),
        at_most(0, lost, "rows", "lost in changelogs"),
        at_most(0, repeated, "rows", "repeated in changelogs"),
    ]
    report.notes += [
        "Seconds count from the kill and include the start of Python and of Spark. Up to date: the view "
        f"shows every change that is {_USUAL_MS / 1000:.0f} s old. The load continues.",
        *wrong,
    ]
    return report


def _row(report: Report, number: int, killed: _Kill, *, side: Side, feed: SteadyFeed, watch: Watch) -> None:
    side.wait_until_reading()
    reading = time.time() - killed.time
    durable = watch.durable.values()

    def caught_up() -> bool:
        feed.check()
        usual = feed.made_at(time.time_ns() // 1_000_000 - _USUAL_MS)
        return min(history.last for history in durable) >= usual

    side.wait(caught_up, _LIMIT_SECONDS, "catch up")
    view = time.time() - killed.time
    side.wait(watch.showing(killed.last), _LIMIT_SECONDS, "merge what came before the kill")
    merged = max(watch.complete_at(killed.last) / 1e3 - killed.time, 0.0)
    report.row(kill=str(number), reading=reading, caught_up=view, merged=merged)


def _live(side: Side, feed: SteadyFeed, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        side.check()
        feed.check()
        time.sleep(min(left, 0.1))


def _changelogs(asked: Reader, folders: Mapping[int, Path], tables: Iterable[int]) -> tuple[int, int]:
    """Return (rows lost, rows repeated), by each change's place in the topic."""
    expected = dict.fromkeys(folders, 0)
    places = dict.fromkeys(folders, 0)
    for number, table in enumerate(tables):
        if table in expected:
            expected[table] += 1
            places[table] += number
    lost = repeated = 0
    for table, path in folders.items():
        rows, distinct, total = asked.ask(
            "SELECT count(*), count(DISTINCT _partition, _offset, _index), sum(DISTINCT _offset) "
            f"FROM delta.`{path}`"
        ).row
        repeated += rows - distinct
        # The sum shows if wrong changes replaced the right ones.
        lost += max(expected[table] - distinct, int(total != places[table]))
    return lost, repeated
