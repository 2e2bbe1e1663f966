"""Handlers of 1 ms and of 10 ms a record, 100 at once."""

from __future__ import annotations

from benchmarks.context import Context
from benchmarks.peers import DECATON, PARALLEL_CONSUMER
from benchmarks.processes import BenchmarkError
from benchmarks.results import Report, at_least
from benchmarks.topics import TopicSpec
from benchmarks.worker_run import Outcome, running_worker

__all__ = ["run"]

_LANES = 100
_PARTITIONS = 8
_LIMIT = 180.0


def run(context: Context) -> Report:
    """Handle 25,000 records of 1,000 tables in 8 partitions."""
    spec = TopicSpec(context.pick(25_000, 2_000), 1_000, _PARTITIONS)
    topic = context.topic(spec)
    report = Report(
        "sleeping",
        f"Slow handlers: {spec.records:,} records, 1,000 tables, {_PARTITIONS} partitions, {_LANES} lanes",
        {
            "handler": "Handler",
            "who": "Worker",
            "rate": "Records/s",
            "ideal": "Ideal",
            "seconds": "s",
            "cpu": "CPU s",
            "parallel": "At once",
        },
    )
    for milliseconds in (1, 10):
        handler, ideal = f"{milliseconds} ms", _LANES * 1000 / milliseconds
        context.say(f"{handler}: binlane")
        ours = _binlane(context, topic, spec.records, milliseconds)
        report.row(
            handler=handler,
            who="binlane",
            rate=ours.rate,
            ideal=ideal,
            seconds=ours.totals.seconds,
            cpu=ours.cpu_seconds,
            parallel=ours.totals.peak_parallel,
            slept=ours.totals.slept_seconds,
        )
        for peer in context.peers.available:
            # Decaton's concurrency is per partition: 12 x 8 = 96 is the nearest to 100.
            threads = _LANES // _PARTITIONS if peer == DECATON else _LANES
            context.say(f"{handler}: {peer.name}")
            theirs = context.peers.run(
                peer,
                bootstrap=context.bootstrap,
                topic=topic,
                limit=_LIMIT,
                records=spec.records,
                threads=threads,
                sleep=milliseconds,
                check=1,
            )
            report.row(
                handler=handler,
                who=peer.name,
                rate=theirs.rate,
                ideal=ideal,
                seconds=theirs.seconds,
                cpu=theirs.cpu_seconds,
                parallel=theirs.peak_parallel,
                slept=theirs.slept_seconds,
            )
            if peer in (PARALLEL_CONSUMER, DECATON):
                report.goals.append(
                    at_least(theirs.rate, ours.rate, "records/s", f"{handler}: as fast", peer.name)
                )
    report.notes += [
        "Every process starts cold, and a 1 ms run lasts only a second or two. CPU is the whole process's, "
        "with its start. Decaton has 12 threads for each of the 8 partitions.",
        *context.peers.notes(),
    ]
    return report


def _binlane(context: Context, topic: str, records: int, milliseconds: int) -> Outcome:
    with running_worker(
        bootstrap=context.bootstrap,
        topic=topic,
        handler="Sleeping",
        options={"sleep": milliseconds},
        lanes={"count": _LANES},
    ) as worker:
        outcome = worker.wait_for(records, _LIMIT)
    totals = outcome.totals
    if not outcome.ok or totals.out_of_order or totals.overlaps:
        raise BenchmarkError(f"binlane on {topic}: not complete and in order: {outcome}\n{worker.log_tail()}")
    return outcome
