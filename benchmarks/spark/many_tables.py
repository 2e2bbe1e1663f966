"""One worker with 100 to 10,000 tables: start, memory, cost of a change and of idling."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.context import Context
from benchmarks.processes import BenchmarkError
from benchmarks.results import Goal, Report, at_least, at_most
from benchmarks.spark.counting_store import CountingStore
from benchmarks.spark.feed import SteadyFeed, TopicTarget, write_backlog
from benchmarks.spark.load import Load
from benchmarks.spark.sides import REPLICA, Side, binlane
from benchmarks.spark.windows import Window, look, since

__all__ = ["run"]

_SIZES = "BINLANE_BENCH_TABLES"
"""Environment variable with other numbers of tables, such as 100,4000."""
_SHARED = "BINLANE_BENCH_SHARED"
"""Environment variable with another `shared_segments` than 1s; 0s: each batch is a separate file."""
_LIMIT_SECONDS = 900
_LOOK_SECONDS = 0.5
_LOOK_SECONDS_A_TABLE = 0.0002
"""Added for each table: a status of ten thousand tables takes a worker a quarter of a second."""
_START_SECONDS = 60
_MEMORY_MIB = 1024
_ALIKE = 1.25
"""Two equal runs differ by up to a quarter."""
_IDLE_MS = 10
"""One percent of a core."""
_REQUESTS = 5
_KEPT_UP = 0.98


def _replicas(**merge: str) -> dict[str, Any]:
    """All tables as replicas. A stopping worker merges nothing more."""
    return {
        **REPLICA,
        "handlers": [
            {
                "type": "spark",
                "mode": "replica",
                "shared_segments": os.environ.get(_SHARED, "1s"),
                "merge": {"at_close": "0s", **merge},
            }
        ],
    }


_MERGING = _replicas()
_WAITING = _replicas(max_age="24h")
"""Nothing is merged, to measure the worker alone."""


@dataclass(frozen=True)
class _Pace:
    rate: int
    """Changes a second, of all tables."""
    warm: float
    """Seconds of warm-up."""
    seconds: float
    """Seconds of measurement."""
    idle: float
    """Seconds without a change; more than a minute, because some work is done once a minute."""


@dataclass(frozen=True)
class _Found:
    """Figures for one number of tables."""

    tables: int
    start: float
    """Seconds from `binlane run`."""
    peak_mib: float
    steady: Window
    idle: Window


def run(context: Context) -> Report:
    """Measure each number of tables with its own lake and topic, then the largest on an object store."""
    pace = context.pick(_Pace(2_000, 20, 40, 66), _Pace(200, 1, 2, 2))
    sizes = _sizes(context)
    report = Report(
        "tables_10k",
        f"{pace.rate:,} changes/s spread over many tables, one worker, local Spark",
        {
            "tables": "Tables",
            "start": "restart, s",
            "peak_mib": "memory of the worker, MiB",
            "rate": "Changes/s",
            "change_us": "CPU of a change, us",
            "batch": "Changes in a batch",
            "batch_ms": "CPU of a batch, ms",
            "idle_ms": "idle: CPU ms a second",
            "java_ms": "idle: Java's CPU ms a second",
        },
    )
    found = []
    for tables in sizes:
        one = _measure(context, tables, pace)
        found.append(one)
        report.row(
            tables=f"{tables:,}",
            start=one.start,
            peak_mib=one.peak_mib,
            rate=one.steady.rate,
            change_us=one.steady.change_us,
            batch=one.steady.changes / max(one.steady.batches, 1),
            batch_ms=one.steady.batch_ms,
            idle_ms=1e3 * one.idle.cpu / one.idle.seconds,
            java_ms=1e3 * one.idle.java / one.idle.seconds,
        )
    report.goals += _goals(found, pace)
    requests, told = _requests(context, sizes[-1], pace)
    report.goals.append(
        at_most(_REQUESTS, requests, "a second", f"{sizes[-1]:,} tables: requests to an object store")
    )
    report.notes += [
        "The restart ends when the worker is ready, a waiting record is durable, and the logs of all "
        "tables are read. Memory is the peak of the Python process. CPU is that of the Python process, "
        f"over {pace.seconds:.0f} s while Spark merges as fast as it can. Idle: over {pace.idle:.0f} s "
        "without changes, with merge.max_age at 24h.",
        told,
    ]
    return report


def _sizes(context: Context) -> list[int]:
    """Return the numbers of tables, ascending. Raises BenchmarkError."""
    given = os.environ.get(_SIZES)
    if given is None:
        return context.pick([100, 1_000, 10_000], [4, 12])
    try:
        return sorted(int(each) for each in given.split(","))
    except ValueError:
        raise BenchmarkError(f"{_SIZES} is {given!r}: write numbers with commas, as in 100,4000") from None


def _goals(found: list[_Found], pace: _Pace) -> list[Goal]:
    least, most = found[0], found[-1]
    name = f"{most.tables:,} tables"
    beside = f"{least.tables:,} tables"
    idle = [1e3 * each.idle.cpu / each.idle.seconds for each in (least, most)]
    return [
        at_most(_START_SECONDS, most.start, "s", f"{name}: restart"),
        at_most(_MEMORY_MIB, most.peak_mib, "MiB", f"{name}: memory of the worker"),
        at_least(_KEPT_UP * pace.rate, most.steady.rate, "changes/s", f"{name}: changes taken"),
        at_most(
            _ALIKE * least.steady.batch_ms,
            most.steady.batch_ms,
            "ms",
            f"{name}: CPU of a batch, {_ALIKE} times",
            beside,
        ),
        at_most(
            _ALIKE * least.steady.change_us,
            most.steady.change_us,
            "us",
            f"{name}: CPU of a change, {_ALIKE} times",
            beside,
        ),
        at_most(_IDLE_MS, idle[1] - idle[0], "ms a second", f"{name}: CPU that idle tables add", beside),
    ]


def _measure(context: Context, tables: int, pace: _Pace) -> _Found:
    load = Load(tables, each_once=True)
    topic = TopicTarget(context.bootstrap, f"tables-10k-{time.time_ns()}")
    with tempfile.TemporaryDirectory(prefix="binlane-spark-") as temporary:
        arguments: dict[str, Any] = {
            "bootstrap": context.bootstrap,
            "topic": topic.topic,
            "folder": Path(temporary),
            "http": True,
        }
        context.say(f"{tables:,} tables: the first change of each")
        write_backlog(load, [topic], tables)
        with binlane(**arguments, tables=[_WAITING]) as side:
            _wait_for(side, tables, tables)
            side.stop()
        context.say(f"{tables:,} tables: started again")
        write_backlog(load, [topic], 1)
        with binlane(**arguments, tables=[_MERGING]) as side:
            _wait_for(side, 1, tables)
            start = time.time() - side.started
            steady = _steady(side, SteadyFeed(load, topic, pace.rate), pace)
            peak = side.own_peak_mib()
            side.kill()
        context.say(f"{tables:,} tables: without a change")
        with binlane(**arguments, tables=[_WAITING]) as side:
            _wait_for(side, 0, tables, all_read=True)
            before = look(side)
            time.sleep(pace.idle)
            idle = since(side, before)
            side.stop()
    return _Found(tables, start, peak, steady, idle)


def _requests(context: Context, tables: int, pace: _Pace) -> tuple[float, str]:
    """Return the requests a second to an object store, and a note about them. Spark does not run, so only
    the log's requests count, not Delta's."""
    load = Load(tables, each_once=True)
    topic = TopicTarget(context.bootstrap, f"tables-10k-store-{time.time_ns()}")
    with CountingStore() as store, tempfile.TemporaryDirectory(prefix="binlane-spark-") as temporary:
        context.say(f"{tables:,} tables on an object store")
        write_backlog(load, [topic], tables)
        spark = {"warehouse": "s3a://lake/all", "remote": "sc://127.0.0.1:1", "single_writer": True}
        with binlane(
            bootstrap=context.bootstrap,
            topic=topic.topic,
            folder=Path(temporary),
            http=True,
            spark=spark,
            environment=store.environment,
            tables=[_WAITING],
        ) as side:
            _wait_for(side, tables, tables)
            feed = SteadyFeed(load, topic, pace.rate)
            feed.start()
            # A minute after its last change each log is looked at, for what other workers have put: most have
            # had a second change before that, once the first ones are over.
            _sleep(side, feed, 3 * pace.warm)
            counted, looked = store.requests.copy(), look(side)
            _sleep(side, feed, pace.seconds)
            counted = store.requests - counted
            window = since(side, looked)
            feed.stop()
            side.kill()
    kinds = ", ".join(f"{count / window.seconds:,.1f} {kind}" for kind, count in counted.most_common())
    told = (
        f"Object store: {kinds} requests a second, for {window.rate:,.0f} changes/s in "
        f"{window.batches / window.seconds:,.0f} batches/s. These are the log's requests, without Spark's."
    )
    return counted.total() / window.seconds, told


def _wait_for(side: Side, changes: int, tables: int, *, all_read: bool = False) -> None:
    """Wait until `changes` are durable and `tables` known. `all_read`: and the topic is fully read.

    Raises BenchmarkError if the worker ends early or takes too long."""

    def is_there() -> bool:
        status = side.status()
        if status is None or status["state"] != "running" or status["finished_records"] < changes:
            return False
        if all_read and any(each["lag"] != 0 for each in status["partitions"]):
            return False
        known: list[Mapping[str, Any]] = [each.get("tables", []) for each in status["handlers"]]
        return sum(map(len, known)) >= tables

    deadline = time.monotonic() + _LIMIT_SECONDS
    while not is_there():
        side.check()
        if time.monotonic() > deadline:
            raise BenchmarkError(f"the worker knows not all of {tables} tables in {_LIMIT_SECONDS} s")
        time.sleep(_LOOK_SECONDS + tables * _LOOK_SECONDS_A_TABLE)


def _steady(side: Side, feed: SteadyFeed, pace: _Pace) -> Window:
    feed.start()
    _sleep(side, feed, pace.warm)
    before = look(side)
    _sleep(side, feed, pace.seconds)
    window = since(side, before)
    feed.stop()
    return window


def _sleep(side: Side, feed: SteadyFeed, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        side.check()
        feed.check()
        time.sleep(min(0.5, left))
