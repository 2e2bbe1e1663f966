"""Handlers that wait 10 ms for each record, 500 at once: coroutines beside threads, and beside others."""

from __future__ import annotations

from benchmarks.context import Context
from benchmarks.peers import FASTSTREAM, PARALLEL_CONSUMER, REACTOR, Peer
from benchmarks.processes import BenchmarkError
from benchmarks.results import Report, at_least
from benchmarks.topics import TopicSpec
from benchmarks.worker_run import Outcome, running_worker

__all__ = ["run"]

_AT_ONCE = 500
_MILLISECONDS = 10
_PARTITIONS = 8
_LIMIT = 180.0


def run(context: Context) -> Report:
    """Handle 200,000 records of 1,000 tables in 8 partitions."""
    spec = TopicSpec(context.pick(200_000, 5_000), 1_000, _PARTITIONS)
    topic = context.topic(spec)
    report = Report(
        "waiting",
        f"Waiting handlers: {spec.records:,} records, 1,000 tables, {_PARTITIONS} partitions, "
        f"{_MILLISECONDS} ms each, {_AT_ONCE} at once",
        {
            "who": "Worker",
            "rate": "Records/s",
            "ideal": "Ideal",
            "seconds": "s",
            "cpu": "CPU s",
            "rss": "Peak RSS MiB",
            "parallel": "At once",
            "disorder": "Out of order",
        },
    )
    ideal = _AT_ONCE * 1000 / _MILLISECONDS
    rates: dict[str, float] = {}

    for who, handler in (("binlane, coroutines", "Awaiting"), ("binlane, threads", "Sleeping")):
        context.say(who)
        ours = _binlane(context, topic, spec.records, handler)
        rates[who] = ours.rate
        report.row(
            who=who,
            rate=ours.rate,
            ideal=ideal,
            seconds=ours.totals.seconds,
            cpu=ours.cpu_seconds,
            rss=ours.rss_kib / 1024,
            parallel=ours.totals.peak_parallel,
            disorder=ours.totals.out_of_order + ours.totals.overlaps,
        )
    peers: list[Peer] = []
    if context.peers.has(PARALLEL_CONSUMER):
        peers.append(PARALLEL_CONSUMER)
    for peer in [*peers, *context.peers.prepare_waiting()]:
        context.say(peer.name)
        theirs = context.peers.run(
            peer,
            bootstrap=context.bootstrap,
            topic=topic,
            limit=_LIMIT,
            records=spec.records,
            threads=_AT_ONCE,
            sleep=_MILLISECONDS,
            check=1,
        )
        report.row(
            who=peer.name,
            rate=theirs.rate,
            ideal=ideal,
            seconds=theirs.seconds,
            cpu=theirs.cpu_seconds,
            rss=theirs.rss_kib / 1024,
            parallel=theirs.peak_parallel,
            disorder=theirs.out_of_order + theirs.overlaps,
        )
        if peer in (PARALLEL_CONSUMER, REACTOR):
            own = rates["binlane, coroutines"]
            report.goals.append(at_least(theirs.rate, own, "records/s", "as fast", peer.name))
    missing = context.peers.missing.get(FASTSTREAM.name)
    report.notes.append(
        "FastStream handles records at once only if it acknowledges them before, and keeps no order: after a "
        "crash, records are lost. Every process starts cold; CPU is the whole process's."
        + (f" FastStream not measured: {missing}." if missing else "")
    )
    return report


def _binlane(context: Context, topic: str, records: int, handler: str) -> Outcome:
    with running_worker(
        bootstrap=context.bootstrap,
        topic=topic,
        handler=handler,
        options={"sleep": _MILLISECONDS},
        lanes={"count": _AT_ONCE},
    ) as worker:
        outcome = worker.wait_for(records, _LIMIT)
    if not outcome.ok or outcome.totals.out_of_order or outcome.totals.overlaps:
        raise BenchmarkError(f"binlane on {topic}: not complete and in order: {outcome}\n{worker.log_tail()}")
    return outcome
