"""One table of ten whose rows are all refused: the rate of the others, and the memory."""

from __future__ import annotations

from statistics import median

from benchmarks.context import Context
from benchmarks.results import Report, at_least
from benchmarks.topics import TopicSpec
from benchmarks.worker_run import Outcome, running_worker

__all__ = ["run"]

_TABLES = 10
_PAIRS = 3
_LIMIT = 180.0
_SHARE = 0.95


def run(context: Context) -> Report:
    """Handle a backlog of 1,000,000 records of ten tables, with and without a table that stands still."""
    spec = TopicSpec(context.pick(1_000_000, 20_000), _TABLES)
    topic = context.topic(spec)
    others = spec.records - spec.records // _TABLES
    report = Report(
        "standing",
        f"One table of ten is refused: {spec.records:,} records in one partition, default bounds",
        {
            "who": "Worker",
            "records": "Others' records",
            "seconds": "s",
            "rate": "Records/s",
            "rss": "Peak RSS MiB",
        },
    )
    rates: dict[str, list[float]] = {"": [], "shop.t0": []}
    for _ in range(_PAIRS):
        for refused, found in rates.items():
            context.say(f"refused: {refused or 'none'}")
            outcome = _binlane(context, topic, refused, others)
            found.append(outcome.rate)
            report.row(
                who=f"{refused} is refused" if refused else "no table is refused",
                records=outcome.records,
                seconds=outcome.seconds,
                rate=outcome.rate,
                rss=outcome.rss_kib // 1024,
            )
    without, with_it = map(median, rates.values())
    report.goals.append(
        at_least(_SHARE * without, with_it, "records/s", f"the others: {_SHARE} of their rate without it")
    )
    report.notes.append("Medians are compared. Only rows of the other tables are counted in both cases.")
    return report


def _binlane(context: Context, topic: str, refused: str, others: int) -> Outcome:
    with running_worker(
        bootstrap=context.bootstrap, topic=topic, handler="Refusing", options={"refused": refused}
    ) as worker:
        return worker.wait_for(others, _LIMIT)
