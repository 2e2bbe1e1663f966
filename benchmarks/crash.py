"""Records that a restart repeats after kill -9, while one record is unfinished."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from benchmarks.context import Context
from benchmarks.peers import Peer
from benchmarks.processes import BenchmarkError
from benchmarks.results import Report, at_most
from benchmarks.topics import SLOW_RECORD, TopicSpec
from benchmarks.worker_run import running_worker

__all__ = ["run"]

_LANES = 16
_SLOW_SECONDS = 60
_FIRST_RUN_LIMIT = 40.0
_SECOND_RUN_LIMIT = 90.0


class _Pace(NamedTuple):
    """Seconds."""

    interval: int
    """Between commits."""
    quiet: float
    """Seconds without a record after which a run is complete."""


def run(context: Context) -> Report:
    """Finish 10,000 records while one takes 60 s, kill -9 a commit interval later, and restart."""
    spec = TopicSpec(context.pick(10_001, 501), 1_000, slow_alone=True)
    topic = context.topic(spec)
    pace = _Pace(*context.pick((5, 5.0), (1, 2.0)))
    report = Report(
        "crash",
        f"Repeats after a crash: record {SLOW_RECORD} takes {_SLOW_SECONDS} s, {spec.records - 1:,} others "
        "finish, kill -9, restart",
        {
            "who": "Worker",
            "finished": "Finished at the kill",
            "committed": "Committed offset",
            "repeated": "Handled twice",
            "missing": "Never handled",
        },
    )
    for peer in (None, *context.peers.available):
        name = "binlane" if peer is None else peer.name
        context.say(name)
        with tempfile.TemporaryDirectory(prefix="binlane-crash-") as temporary:
            seen = Path(temporary, "seen")
            seen.write_bytes(bytes(spec.records))
            group = f"crash-{time.time_ns()}"
            if peer is None:
                finished, committed = _binlane(context, topic, seen, group, pace=pace, folder=Path(temporary))
            else:
                finished, committed = _peer(context, peer, topic, seen, group, pace=pace)
            times = seen.read_bytes()
        repeated, missing = sum(n > 1 for n in times), times.count(0)
        report.row(who=name, finished=finished, committed=committed, repeated=repeated, missing=missing)
        if peer is None:
            report.goals += [
                at_most(0, repeated, "records", "handled twice"),
                at_most(0, missing, "records", "never handled"),
            ]
            if finished < spec.records - 1:
                raise BenchmarkError(f"binlane finished {finished:,} of the {spec.records - 1:,} others")
    report.notes += [
        f"Each worker is killed {pace.interval + 2} s after the last of the others finished. It commits "
        f"every {pace.interval} s (Decaton: every second, its default). The slow record has its own table.",
        *context.peers.notes(),
    ]
    return report


def _binlane(
    context: Context, topic: str, seen: Path, group: str, *, pace: _Pace, folder: Path
) -> tuple[int, int]:
    """Return (records finished at the kill, committed offset then)."""
    common: dict[str, Any] = {
        "bootstrap": context.bootstrap,
        "topic": topic,
        "handler": "Sleeping",
        "lanes": {"count": _LANES},
        "interval": f"{pace.interval}s",
        "group": group,
        "folder": folder,
    }
    slow = {"seen": str(seen), "slow": SLOW_RECORD, "slow_seconds": _SLOW_SECONDS}
    with running_worker(**common, options=slow) as worker:
        _until_quiet(seen, 1, pace.quiet, _FIRST_RUN_LIMIT, worker.check)
        time.sleep(pace.interval + 2)
        worker.check()
        finished = sum(seen.read_bytes())
        worker.kill()
    committed = _committed(context.bootstrap, group, topic)
    with running_worker(**common, options={"seen": str(seen)}) as worker:
        _until_quiet(seen, 0, pace.quiet, _SECOND_RUN_LIMIT, worker.check)
        worker.drain()
    return finished, committed


def _peer(
    context: Context, peer: Peer, topic: str, seen: Path, group: str, *, pace: _Pace
) -> tuple[int, int]:
    common: dict[str, Any] = {
        "bootstrap": context.bootstrap,
        "topic": topic,
        "group": group,
        "seen": seen,
        "threads": _LANES,
        "commit": pace.interval,
    }
    with context.peers.start(peer, **common, slow=SLOW_RECORD, slowms=_SLOW_SECONDS * 1000) as running:
        _until_quiet(seen, 1, pace.quiet, _FIRST_RUN_LIMIT, lambda: None)
        time.sleep(pace.interval + 2)
        finished = sum(seen.read_bytes())
        running.process.kill()
        running.process.wait()
    committed = _committed(context.bootstrap, group, topic)
    with context.peers.start(peer, **common):
        _until_quiet(seen, 0, pace.quiet, _SECOND_RUN_LIMIT, lambda: None)
    return finished, committed


def _until_quiet(seen: Path, left: int, quiet: float, limit: float, check: Callable[[], None]) -> None:
    """Wait until at most `left` records are unhandled and none was handled for `quiet` seconds."""
    deadline = time.monotonic() + limit
    before, moved = 0, time.monotonic()
    while time.monotonic() < deadline:
        check()
        times = seen.read_bytes()
        handled = sum(times)
        if handled != before:
            before, moved = handled, time.monotonic()
        if times.count(0) <= left and time.monotonic() - moved > quiet:
            return
        time.sleep(0.2)


def _committed(bootstrap: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        found: list[TopicPartition] = consumer.committed([TopicPartition(topic, 0)], timeout=30)
    finally:
        consumer.close()
    return int(found[0].offset)
