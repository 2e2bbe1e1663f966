"""One record that never finishes, in a long backlog: the number of others that still finish."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.context import Context
from benchmarks.peers import Peer
from benchmarks.results import Figure, Report, at_least
from benchmarks.topics import SLOW_RECORD, TopicSpec
from benchmarks.worker_run import running_worker

__all__ = ["run"]

_LANES = 16
_LIMIT = 180.0
_LOOK_SECONDS = 0.1
_STEADY = 0.9


class _Sample(NamedTuple):
    seconds: float
    """Seconds since the first record was handled."""
    records: int


def run(context: Context) -> Report:
    """Handle a backlog of 2,000,000 records of 1,000 tables. Record 5 blocks permanently."""
    spec = TopicSpec(context.pick(2_000_000, 20_000), 1_000)
    goal = spec.records // 2
    idle = context.pick(15.0, 3.0)
    topic = context.topic(spec)
    report = Report(
        "stuck",
        f"One stuck record: a backlog of {spec.records:,} records, 1,000 tables, {_LANES} lanes",
        {
            "who": "Worker",
            "records": "Others finished",
            "seconds": "s",
            "first_half": f"Records/s to {goal // 2:,}",
            "second_half": f"to {goal:,}",
            "rest": "after that",
            "rss": "Peak RSS MiB",
        },
    )
    samples, rss = _binlane(context, topic, spec.records, idle)
    ours = _row(report, "binlane", samples, goal, rss)
    for peer in context.peers.available:
        samples, rss = _peer(context, peer, topic, spec.records, idle)
        _row(report, peer.name, samples, goal, rss)
    report.goals.append(at_least(goal, int(ours["records"] or 0), "records", "others finished"))
    first, second = ours["first_half"], ours["second_half"]
    if isinstance(first, float) and isinstance(second, float):
        report.goals.append(
            at_least(
                _STEADY * first,
                second,
                "records/s",
                f"{goal // 2:,} to {goal:,}: {_STEADY} of the rate before",
            )
        )
    report.notes += [
        f"A run ends when no record was handled for {idle:.0f} s, or after {_LIMIT:.0f} s. The stuck record "
        "blocks the rest of its own table (order), which is about one record in 1,000. For binlane, "
        "max_ahead (default: 1,000,000 records) is set higher than the backlog.",
        *context.peers.notes(),
    ]
    return report


def _binlane(context: Context, topic: str, records: int, idle: float) -> tuple[list[_Sample], int]:
    context.say("binlane")
    samples: list[_Sample] = []
    with running_worker(
        bootstrap=context.bootstrap,
        topic=topic,
        handler="Stuck",
        options={"stuck": SLOW_RECORD},
        lanes={"count": _LANES},
        max_ahead=2 * records,
    ) as worker:
        begin = moved = time.monotonic()
        while time.monotonic() - begin < _LIMIT and time.monotonic() - moved < idle:
            worker.check()
            totals = worker.tally.totals()
            if totals.records and (not samples or totals.records > samples[-1].records):
                moved = time.monotonic()
                samples.append(_Sample(totals.seconds, totals.records))
                if totals.records >= records - 1:
                    break
            time.sleep(_LOOK_SECONDS)
        return samples, worker.peak_rss_kib()


def _peer(context: Context, peer: Peer, topic: str, records: int, idle: float) -> tuple[list[_Sample], int]:
    context.say(peer.name)
    with context.peers.start(
        peer,
        bootstrap=context.bootstrap,
        topic=topic,
        records=records,
        threads=_LANES,
        slow=SLOW_RECORD,
        slowms=3_600_000,
        progress=1,
        idle=int(idle * 1000),
        limit=int(_LIMIT),
    ) as running:
        result = running.result(_LIMIT + 20)
        samples = [_Sample(line.seconds, line.records) for line in running.history() if line.records]
    return samples, result.rss_kib


def _row(report: Report, who: str, samples: Sequence[_Sample], goal: int, rss_kib: int) -> dict[str, Figure]:
    last = samples[-1] if samples else _Sample(0.0, 0)
    row: dict[str, Figure] = {
        "who": who,
        "records": last.records,
        "seconds": last.seconds,
        "first_half": _rate(samples, 0, goal // 2),
        "second_half": _rate(samples, goal // 2, goal),
        "rest": _rate(samples, goal, last.records) if last.records > goal else None,
        "rss": rss_kib // 1024,
    }
    report.row(**row)
    return row


def _rate(samples: Sequence[_Sample], begin: int, end: int) -> float | None:
    """Return records/s between two counts; None if the second was not reached."""
    first = (
        next((sample for sample in samples if sample.records >= begin), None) if begin else _Sample(0.0, 0)
    )
    last = next((sample for sample in samples if sample.records >= end), None)
    if first is None or last is None or last.seconds <= first.seconds:
        return None
    return (last.records - first.records) / (last.seconds - first.seconds)
