"""Random sleeps of 0 to 5 ms a record, with few and many tables, compared with the ideal schedule."""

from __future__ import annotations

from benchmarks.context import Context
from benchmarks.peers import DECATON, PARALLEL_CONSUMER, Peer, PeerFigures
from benchmarks.processes import BenchmarkError
from benchmarks.results import Figure, Report, at_most
from benchmarks.topics import TopicSpec, ideal_seconds, micros
from benchmarks.worker_run import Outcome, running_worker

__all__ = ["run"]

_LANES = 16
_NEAR_IDEAL = 1.05


def run(context: Context) -> Report:
    """Handle 10,000 records of one partition with 16 lanes or threads."""
    records = context.pick(10_000, 500)
    report = Report(
        "key_table",
        f"Key table: {records:,} records, one partition, 0-5 ms sleep a record, {_LANES} lanes",
        {
            "tables": "Tables",
            "ideal": "Ideal s",
            "binlane": "binlane s",
            "binlane_ratio": "/ ideal",
            "binlane_slept_ratio": "/ ideal of real sleeps",
            "binlane_parallel": "At once",
            "pc": "Parallel Consumer s",
            "pc_ratio": "/ ideal",
            "pc_parallel": "At once",
            "decaton": "Decaton s",
            "decaton_ratio": "/ ideal",
            "decaton_parallel": "At once",
        },
    )
    nominal = sum(micros(n) for n in range(records)) / 1e6
    for tables in context.pick((1, 2, 5, 10, 20, 100, 1_000, 10_000), (1, 20)):
        spec = TopicSpec(records, tables)
        topic = context.topic(spec)
        ideal = ideal_seconds(spec, _LANES)
        limit = ideal * 10 + 60
        row: dict[str, Figure] = {"tables": tables, "ideal": ideal}
        ours = _binlane(context, topic, records, limit)
        seconds = ours.totals.seconds
        # Timers overshoot, so the handlers slept longer than asked for, here and at the peers.
        real = ideal * ours.totals.slept_seconds / nominal
        row |= {
            "binlane": seconds,
            "binlane_ratio": seconds / ideal,
            "binlane_slept_ratio": seconds / real,
            "binlane_parallel": ours.totals.peak_parallel,
            "binlane_cpu": ours.cpu_seconds,
            "binlane_slept": ours.totals.slept_seconds,
        }
        report.goals.append(
            at_most(
                _NEAR_IDEAL * real, seconds, "s", f"{tables:,} tables: within 5 % of the ideal of real sleeps"
            )
        )
        for peer, key in ((PARALLEL_CONSUMER, "pc"), (DECATON, "decaton")):
            if not context.peers.has(peer):
                continue
            theirs = _peer(context, peer, topic, records, limit)
            row |= {
                key: theirs.seconds,
                f"{key}_ratio": theirs.seconds / ideal,
                f"{key}_parallel": theirs.peak_parallel,
                f"{key}_cpu": theirs.cpu_seconds,
                f"{key}_slept": theirs.slept_seconds,
            }
            if peer == PARALLEL_CONSUMER:
                report.goals.append(
                    at_most(theirs.seconds, seconds, "s", f"{tables:,} tables: faster", peer.name)
                )
        report.row(**row)
    report.notes += [
        f"The ideal is the larger of two times: all sleeps / {_LANES}, and the longest sum of one table's "
        "sleeps. Timers overshoot: the ideal of real sleeps is longer by the share that the handlers "
        "overslept. At once: the most records that were handled at the same time. Every run checked that "
        "each table's records were handled in order, one at a time.",
        *context.peers.notes(),
    ]
    return report


def _binlane(context: Context, topic: str, records: int, limit: float) -> Outcome:
    context.say(f"{topic}: binlane")
    with running_worker(
        bootstrap=context.bootstrap,
        topic=topic,
        handler="Sleeping",
        options={"sleep": "random"},
        lanes={"count": _LANES},
    ) as worker:
        outcome = worker.wait_for(records, limit)
    totals = outcome.totals
    if not outcome.ok or totals.out_of_order or totals.overlaps:
        raise BenchmarkError(f"binlane on {topic}: not complete and in order: {outcome}\n{worker.log_tail()}")
    return outcome


def _peer(context: Context, peer: Peer, topic: str, records: int, limit: float) -> PeerFigures:
    context.say(f"{topic}: {peer.name}")
    return context.peers.run(
        peer,
        bootstrap=context.bootstrap,
        topic=topic,
        limit=limit,
        records=records,
        threads=_LANES,
        sleep="rand",
        check=1,
    )
