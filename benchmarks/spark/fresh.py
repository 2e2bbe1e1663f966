"""A steady load: the time until a change can be queried, by the view and in the table itself."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.context import Context
from benchmarks.processes import BenchmarkError
from benchmarks.results import Figure, Report, at_most
from benchmarks.spark.feed import FileTarget, SteadyFeed, TopicTarget
from benchmarks.spark.freshness import Freshness, measure, plot
from benchmarks.spark.load import Load, table_name
from benchmarks.spark.reader import Reader, delta, differences, reader, view
from benchmarks.spark.sides import REPLICA, binlane, peer, table_folders, ways_of_committing
from benchmarks.spark.steady import Observed, Pace, Queries, observe
from benchmarks.spark.watch import History, Watch

__all__ = ["run"]

_QUERY_EVERY = 10.0
_STREAMING = "Structured Streaming"


def run(context: Context) -> Report:
    """Write 2,000 changes/s of 20 tables for three minutes, after half a minute of warm-up."""
    pace = context.pick(Pace(2_000, 30, 180, 120), Pace(200, 2, 6, 60))
    tables = context.pick(20, 2)
    report = Report(
        "spark_freshness",
        f"A steady load of {pace.rate:,} changes/s of {tables} tables for {pace.seconds:.0f} s: seconds from "
        "the source's commit until queryable",
        {
            "who": "Job",
            "where": "Queried",
            "p50": "p50",
            "p95": "p95",
            "max": "max",
            "tables_p50": "p50 of the tables",
            "tables_p95": "p95 of the tables",
            "commits": "Commits by",
            "query": "Query (p50)",
            "behind": "Age of its newest row (p50)",
            "cpu": "CPU s a second",
            "unseen": "Never visible",
        },
    )
    lines: dict[str, Freshness] = {}
    with tempfile.TemporaryDirectory(prefix="binlane-spark-") as temporary, reader() as asked:
        for number, (who, rule) in enumerate(ways_of_committing(REPLICA).items()):
            ours = _Run(report, Path(temporary, f"binlane-{number}"), tables, pace, asked)
            lines |= ours.binlane(context.bootstrap, who, rule)
        if context.with_peers:
            lines |= _Run(report, Path(temporary, "peer"), tables, pace, asked).peer()
    if context.with_peers:
        theirs = lines[f"{_STREAMING}, merged"]
        by_view = lines["binlane, view"]
        report.goals += [
            at_most(theirs.at(0.5) / 3, by_view.at(0.5), "s", "by the view, p50: a third", _STREAMING),
            at_most(theirs.at(0.95) / 3, by_view.at(0.95), "s", "by the view, p95: a third", _STREAMING),
            at_most(10, by_view.at(0.95), "s", "by the view, p95"),
        ]
        ours = lines["binlane, merged"]
        report.goals += [
            at_most(2.5, ours.at(0.5), "s", "merged, p50"),
            at_most(5, ours.at(0.95), "s", "merged, p95"),
        ]
        for who in ways_of_committing(REPLICA):
            merged = lines[f"{who}, merged"]
            report.goals += [
                at_most(theirs.at(0.5) / 5, merged.at(0.5), "s", f"{who}, merged, p50: a fifth", _STREAMING),
                at_most(theirs.at(0.95), merged.at(0.95), "s", f"{who}, merged, p95: no worse", _STREAMING),
            ]
    if context.plots is not None:
        plot(context.plots / "spark-freshness.png", report.title, lines)
    report.notes.append(
        "For every change of that time: seconds until its segment was written (view), or until the Delta "
        "commit that contains it (merged). Never visible: changes that no commit contained when the run "
        "ended. The figures of the tables are those of the freshest and the stalest table; the results' file "
        f"has each. Every {_QUERY_EVERY:.0f} s, another Spark on the same machine counts and sums one whole "
        "table (query). Afterwards every table equals the source."
    )
    return report


@dataclass(frozen=True)
class _Run:
    """One side's run."""

    report: Report
    folder: Path
    tables: int
    pace: Pace
    asked: Reader

    def binlane(self, bootstrap: str, who: str, rule: Mapping[str, Any]) -> dict[str, Freshness]:
        load = Load(self.tables)
        topic = TopicTarget(bootstrap, f"spark-freshness-{time.time_ns()}")
        folders = table_folders(self.folder, self.tables)
        feed = SteadyFeed(load, topic, self.pace.rate)
        watch = Watch(folders)
        with binlane(bootstrap=bootstrap, topic=topic.topic, folder=self.folder, tables=[rule]) as side:
            side.wait_until_reading()
            queries = Queries(self.asked, folders, view, feed, every=_QUERY_EVERY)
            observed = observe(side, feed, watch, self.pace)
            queries.close()
            side.stop()
        watch.close()
        by_view = measure(feed, watch.durable, observed.window, observed.end_ms)
        merged = measure(feed, watch.merged, observed.window, observed.end_ms)
        own = self._by_table(feed, watch.durable, observed)
        self._row(who, "view", by_view, observed, own=own, queries=queries)
        own = self._by_table(feed, watch.merged, observed) | {"commits": _said(watch.engines)}
        self._row(who, "merged table", merged, observed, own=own)
        self._judge(folders, load)
        return {f"{who}, view": by_view, f"{who}, merged": merged}

    def peer(self) -> dict[str, Freshness]:
        load = Load(self.tables)
        files = FileTarget(self.folder / "files")
        folders = table_folders(self.folder, self.tables)
        feed = SteadyFeed(load, files, self.pace.rate)
        watch = Watch(folders)
        with peer(source=files.folder, folder=self.folder, max_files=200) as side:
            side.wait_until_reading()
            queries = Queries(self.asked, folders, delta, feed, every=_QUERY_EVERY)
            observed = observe(side, feed, watch, self.pace)
            queries.close()
        watch.close()
        merged = measure(feed, watch.merged, observed.window, observed.end_ms)
        own = self._by_table(feed, watch.merged, observed) | {"commits": _said(watch.engines)}
        self._row(_STREAMING, "merged table", merged, observed, own=own, queries=queries)
        if observed.merged:
            self._judge(folders, load)
        return {f"{_STREAMING}, merged": merged}

    def _judge(self, folders: Mapping[int, Path], load: Load) -> None:
        if found := differences(self.asked, folders, load.truth()):
            raise BenchmarkError("\n".join(found))

    def _row(
        self,
        who: str,
        where: str,
        freshness: Freshness,
        observed: Observed,
        *,
        own: Mapping[str, Figure],
        queries: Queries | None = None,
    ) -> None:
        """`own` are further figures of the row."""
        samples = [] if queries is None else queries.samples
        self.report.row(
            who=who,
            where=where,
            p50=freshness.at(0.5),
            p95=freshness.at(0.95),
            max=freshness.longest,
            query=_median([sample.seconds for sample in samples]),
            behind=_median([sample.behind for sample in samples]),
            cpu=observed.cpu_seconds / self.pace.seconds,
            rss_mib=observed.rss_mib,
            unseen=freshness.unseen,
            **own,
        )

    def _by_table(
        self, feed: SteadyFeed, histories: Mapping[int, History], observed: Observed
    ) -> dict[str, Figure]:
        """The percentiles of each table, and the range over all tables."""
        found = {
            table: measure(feed, histories, observed.window, observed.end_ms, [table]) for table in histories
        }
        figures: dict[str, Figure] = {}
        for name, share in (("p50", 0.5), ("p95", 0.95)):
            each = {table: one.at(share) for table, one in found.items() if one.seconds}
            figures |= {f"{table_name(table)} {name}": seconds for table, seconds in each.items()}
            least, most = min(each.values(), default=0.0), max(each.values(), default=0.0)
            figures[f"tables_{name}"] = f"{least:.2f} to {most:.2f}"
        return figures


def _said(engines: Mapping[str, int]) -> str:
    return ", ".join(f"{engine} {count:,}" for engine, count in sorted(engines.items())) or "none"


def _median(values: list[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None
