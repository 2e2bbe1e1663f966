"""Freshness of the other tables while one is 100 times slower, by its handler or its size."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.context import Context
from benchmarks.results import Report, at_most
from benchmarks.spark.feed import SteadyFeed, TopicTarget, write_backlog
from benchmarks.spark.freshness import Freshness, measure
from benchmarks.spark.load import DATABASE, Load, table_name
from benchmarks.spark.sides import REPLICA, binlane, table_folders
from benchmarks.spark.steady import Pace, observe
from benchmarks.spark.watch import Watch

__all__ = ["run"]

_UNCHANGED = 1.25
"""Two equal runs differ this much on a small machine."""
_LOAD_SECONDS = 300


def run(context: Context) -> Report:
    """Run with equal tables, with a slow handler for table 0, and with a 100 times larger table 0."""
    pace = context.pick(Pace(2_000, 20, 60, 90), Pace(200, 2, 5, 60))
    tables = context.pick(20, 3)
    sleep = context.pick(5.0, 1.0)
    larger = context.pick(500_000, 5_000)
    report = Report(
        "spark_slow_table",
        f"One of {tables} tables is 100 times slower: freshness of the others at {pace.rate:,} changes/s",
        {
            "how": "Table 0",
            "where": "Queried",
            "p50": "p50 s, others",
            "p95": "p95 s, others",
            "ratio50": "p50, ratio",
            "ratio95": "p95, ratio",
            "own95": "p95 s, table 0",
        },
    )
    slow = {
        **REPLICA,
        "match": f"{DATABASE}.{table_name(0)}",
        "handlers": [*REPLICA["handlers"], {"type": "benchmarks.handlers:Slow", "seconds": sleep}],
    }
    runs = {
        "as the others": ([REPLICA], 0),
        f"each batch takes {sleep:.0f} s": ([slow, REPLICA], 0),
        f"starts with {larger:,} rows": ([REPLICA], larger),
    }
    usual: dict[str, Freshness] = {}
    for how, (sections, rows) in runs.items():
        context.say(how)
        load = Load(tables, bigger=rows)
        with tempfile.TemporaryDirectory(prefix="binlane-spark-") as temporary:
            folder = Path(temporary)
            topic = TopicTarget(context.bootstrap, f"spark-slow-{time.time_ns()}")
            watch = Watch(table_folders(folder, tables))
            write_backlog(load, [topic], rows)
            feed = SteadyFeed(load, topic, pace.rate)
            with binlane(
                bootstrap=context.bootstrap, topic=topic.topic, folder=folder, tables=sections
            ) as side:
                side.wait_until_reading()
                last = load.last()
                side.wait(watch.showing(last), _LOAD_SECONDS, "load the large table")
                observed = observe(side, feed, watch, pace)
                side.kill()  # not stop(), which would wait for a sleeping batch
            watch.close()
        for where, histories in (("view", watch.durable), ("merged", watch.merged)):
            others = measure(feed, histories, observed.window, observed.end_ms, range(1, tables))
            own = measure(feed, histories, observed.window, observed.end_ms, [0])
            before = usual.setdefault(where, others)
            ratios = (others.at(0.5) / before.at(0.5), others.at(0.95) / before.at(0.95))
            report.row(
                how=how,
                where=where,
                p50=others.at(0.5),
                p95=others.at(0.95),
                ratio50=ratios[0],
                ratio95=ratios[1],
                own95=own.at(0.95),
            )
            if before is not others:
                report.goals.append(at_most(_UNCHANGED, ratios[1], "times", f"{how}: p95, {where}"))
    report.notes.append(f"Two equal runs differ by up to a quarter, so {_UNCHANGED} is the goal.")
    return report
