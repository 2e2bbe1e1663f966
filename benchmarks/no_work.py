"""The cost of the worker itself, with a handler that only reads every row."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Protocol

import msgspec

from benchmarks.bare_loop import BareFigures
from benchmarks.context import Context
from benchmarks.peers import DECATON, PARALLEL_CONSUMER, POLL_LOOP, PeerFigures
from benchmarks.processes import BenchmarkError, child
from benchmarks.results import Report, at_least
from benchmarks.topics import TopicSpec
from benchmarks.worker_run import Outcome, running_worker

__all__ = ["run"]

_ROOT = Path(__file__).parent.parent
_LANES = 16
_LIMIT = 240.0
_READING_RATE = 200_000.0
_SHARE = 0.75
_TIMES_PARALLEL_CONSUMER = 4


class _Measured(Protocol):
    @property
    def records(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def cpu_seconds(self) -> float: ...
    @property
    def cpu_at_first(self) -> float: ...
    @property
    def rss_kib(self) -> int: ...


def run(context: Context) -> Report:
    """Handle 1,000,000 records of 1,000 tables in one partition."""
    spec = TopicSpec(context.pick(1_000_000, 20_000), 1_000)
    topic = context.topic(spec)
    report = Report(
        "no_work",
        f"No work: {spec.records:,} records of about 480 B, 1,000 tables, one partition, {_LANES} lanes",
        {
            "who": "Worker",
            "rate": "Records/s",
            "seconds": "s",
            "cpu": "CPU s per million",
            "cpu_from_first": "without the start",
            "rss": "Peak RSS MiB",
        },
    )
    bare = {}
    for what in ("route", "decode"):
        who = f"bare loop: consume and {what}"
        context.say(who)
        bare[what] = _bare(context, topic, spec.records, what)
        _add(report, who, bare[what])
    reading = _binlane(context, report, topic, spec.records, who="binlane, reading every row")
    peers: dict[str, PeerFigures] = {}
    for peer, parses in ((POLL_LOOP, 0), *((peer, 1) for peer in context.peers.available)):
        if not context.peers.has(peer):
            continue
        context.say(peer.name)
        theirs = context.peers.run(
            peer,
            bootstrap=context.bootstrap,
            topic=topic,
            limit=_LIMIT,
            records=spec.records,
            threads=_LANES,
            parse=parses,
        )
        peers[peer.name] = theirs
        _add(report, f"{peer.name}, reading every row" if parses else peer.name, theirs)
    for peer, times in ((PARALLEL_CONSUMER, _TIMES_PARALLEL_CONSUMER), (DECATON, 1)):
        if theirs := peers.get(peer.name):
            text = "reading every row" if times == 1 else f"reading every row: {times} times"
            report.goals.append(at_least(times * theirs.rate, reading.rate, "records/s", text, peer.name))
    decoding = bare["decode"].records / bare["decode"].seconds
    report.goals.append(
        at_least(
            _SHARE * decoding, reading.rate, "records/s", f"reading every row: {_SHARE} of the bare loop"
        )
    )
    report.goals.append(at_least(_READING_RATE, reading.rate, "records/s", "reading every row"))
    report.notes += [
        "Seconds count from the first record handled to the last. CPU is the whole process's, once with "
        "its start (interpreter or JVM) and once from the first record on. The broker shares the machine. "
        "The peers' handlers parse each record with Jackson and read its row's columns, as binlane's "
        "handler does.",
        *context.peers.notes(),
    ]
    return report


def _binlane(context: Context, report: Report, topic: str, records: int, *, who: str) -> Outcome:
    context.say(who)
    with running_worker(
        bootstrap=context.bootstrap, topic=topic, handler="Reading", lanes={"count": _LANES}
    ) as worker:
        outcome = worker.wait_for(records, _LIMIT)
    if not outcome.ok:
        raise BenchmarkError(f"{who}: {outcome.totals.records:,} of {records:,}\n{worker.log_tail()}")
    _add(report, who, outcome)
    return outcome


def _bare(context: Context, topic: str, records: int, what: str) -> BareFigures:
    """Run the bare loop in a new process, like the others."""
    command = [sys.executable, "-m", "benchmarks.bare_loop", context.bootstrap, topic, str(records), what]
    with (
        tempfile.TemporaryFile() as out,
        child(
            command, stdout=out, stderr=sys.stderr.fileno(), environment={"PYTHONPATH": str(_ROOT)}
        ) as process,
    ):
        try:
            code = process.wait(_LIMIT)
        except subprocess.TimeoutExpired:
            raise BenchmarkError(f"the bare loop did not end within {_LIMIT:.0f} s") from None
        out.seek(0)
        if code:
            raise BenchmarkError(f"the bare loop ended with {code}")
        return msgspec.json.decode(out.read(), type=BareFigures)


def _add(report: Report, who: str, measured: _Measured) -> None:
    million = measured.records / 1e6
    report.row(
        who=who,
        records=measured.records,
        rate=measured.records / measured.seconds,
        seconds=measured.seconds,
        cpu=measured.cpu_seconds / million,
        cpu_from_first=(measured.cpu_seconds - measured.cpu_at_first) / million,
        rss=measured.rss_kib // 1024,
    )
