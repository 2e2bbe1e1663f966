"""Peak memory while a long backlog waits for a slow handler."""

from __future__ import annotations

import time

from benchmarks.context import Context
from benchmarks.results import Report, at_most
from benchmarks.topics import TopicSpec
from benchmarks.worker_run import running_worker

__all__ = ["run"]

_LANES = 16
_MAX_BYTES = "32MiB"
_SLEEP_MILLISECONDS = 50
_START_LIMIT = 60.0
_MOST_MIB = 300.0


def run(context: Context) -> Report:
    """Measure with more than 300,000 waiting records and `max_bytes` of 32 MiB."""
    records, seconds = context.pick((310_000, 30), (20_000, 3))
    report = Report(
        "backlog",
        f"Backlog: {records:,} records, a handler of {_SLEEP_MILLISECONDS} ms a record, "
        f"max_bytes {_MAX_BYTES}, for {seconds} s",
        {
            "who": "Worker",
            "tables": "Tables",
            "handled": "Handled",
            "waiting": "Waiting",
            "queued": "Queued MiB",
            "peak": "Peak RSS MiB",
        },
    )
    for tables in context.pick((1_000, _LANES), (1_000,)):
        topic = context.topic(TopicSpec(records, tables))
        context.say(f"{tables:,} tables: binlane")
        with running_worker(
            bootstrap=context.bootstrap,
            topic=topic,
            handler="Sleeping",
            options={"sleep": _SLEEP_MILLISECONDS},
            lanes={"count": _LANES, "max_bytes": _MAX_BYTES},
        ) as worker:
            worker.wait_for(1, _START_LIMIT)
            time.sleep(seconds)
            worker.check()
            lanes = worker.status()["lanes"]
            outcome = worker.outcome()
        peak = outcome.rss_kib / 1024
        report.row(
            who="binlane",
            tables=tables,
            handled=outcome.totals.records,
            waiting=records - outcome.totals.records,
            queued=sum(lane["queued_bytes"] for lane in lanes) / 2**20,
            peak=peak,
        )
        report.goals.append(at_most(_MOST_MIB, peak, "MiB", f"{tables:,} tables: peak memory"))
        for peer in context.peers.available:
            context.say(f"{tables:,} tables: {peer.name}")
            theirs = context.peers.run(
                peer,
                bootstrap=context.bootstrap,
                topic=topic,
                limit=seconds,
                threads=_LANES,
                sleep=_SLEEP_MILLISECONDS,
            )
            report.row(
                who=peer.name,
                tables=tables,
                handled=theirs.records,
                waiting=records - theirs.records,
                peak=theirs.rss_kib / 1024,
            )
    report.notes += [
        "Memory is the peak resident memory that the kernel reports (VmHWM). Spark is not loaded. The JVMs "
        "ran with -Xmx2g: their figure is the memory that they took, not the memory that they need.",
        *context.peers.notes(),
    ]
    return report
