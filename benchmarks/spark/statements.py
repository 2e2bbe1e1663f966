"""Lane time of batches at a steady load, with and without DDL of the source."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.context import Context
from benchmarks.results import Report, at_most
from benchmarks.spark.feed import SteadyFeed, TopicTarget
from benchmarks.spark.load import DATABASE, Load, Record, table_name
from benchmarks.spark.sides import REPLICA, Side, binlane

__all__ = ["run"]

_LOOK_SECONDS = 0.1
_DRAINED_SECONDS = 300
_ALIKE = 1.25
"""Two equal runs differ by up to a quarter."""
_MORE = {b'"sqlType":{': b'"more":4,', b'"mysqlType":{': b'"more":"int",', b'"data":[{': b'"more":"1",'}
"""Additions to a record of a table that has the column: place -> text."""
_LONGEST = 1.0
"""Seconds. A batch takes longer only if it waits for Spark."""


@dataclass(frozen=True)
class _Pace:
    tables: int
    rate: int
    """Changes a second."""
    warm: float
    seconds: float
    every: float
    """Seconds between two statements. Each statement is for another table."""


@dataclass(frozen=True)
class _Found:
    batches: int
    busy: float
    longest: float
    statements: int

    @property
    def mean_ms(self) -> float:
        return 1e3 * self.busy / max(self.batches, 1)


class _Altering:
    """A target that adds a column to a table, or drops it, from time to time. Rows follow."""

    tick = TopicTarget.tick

    def __init__(self, target: TopicTarget, tables: int, every: float) -> None:
        """`every`: seconds between statements; 0 means never."""
        self.statements = 0
        self._target = target
        self._every = every
        self._tables = tables
        self._with_column: set[int] = set()
        self._next: float | None = None
        self.is_on = False

    def write(self, records: Sequence[Record]) -> None:
        now = time.monotonic()
        if self.is_on and self._every and (self._next is None or now >= self._next):
            self._next = now + self._every
            self._target.write([self._statement(self.statements % self._tables)])
            self.statements += 1
        self._target.write([self._changed(record) for record in records])

    def flush(self) -> None:
        self._target.flush()

    def _statement(self, table: int) -> Record:
        name, now = table_name(table), time.time_ns() // 1_000_000
        self._with_column ^= {table}
        how = "ADD COLUMN more int" if table in self._with_column else "DROP COLUMN more"
        record = {
            "database": DATABASE,
            "table": name,
            "isDdl": True,
            "type": "ALTER",
            "es": now,
            "ts": now,
            "sql": f"ALTER TABLE {DATABASE}.{name} {how}",
            "data": None,
        }
        return Record(0, table, json.dumps(record).encode())

    def _changed(self, record: Record) -> Record:
        if record.table not in self._with_column:
            return record
        value = record.value
        for head, more in _MORE.items():
            value = value.replace(head, head + more, 1)
        return Record(record.number, record.table, value)


def run(context: Context) -> Report:
    """Write 2,000 changes/s of 20 tables. The second run has a statement each second as well."""
    pace = context.pick(_Pace(20, 2_000, 20, 60, 1), _Pace(2, 200, 2, 6, 1))
    report = Report(
        "spark_statements",
        f"{pace.rate:,} changes/s of {pace.tables} tables for {pace.seconds:.0f} s, with DDL and without",
        {
            "what": "Statements",
            "batches": "Batches",
            "busy": "Lanes busy, s",
            "mean_ms": "a batch, ms",
            "longest": "Longest batch seen, s",
        },
    )
    found = {every: _measure(context, pace, every) for every in (0.0, pace.every)}
    for each in found.values():
        report.row(
            what=each.statements,
            batches=each.batches,
            busy=each.busy,
            mean_ms=each.mean_ms,
            longest=each.longest,
        )
    plain, altered = found.values()
    report.goals += [
        at_most(
            _ALIKE * plain.mean_ms,
            altered.mean_ms,
            "ms",
            f"lane time of a batch, {_ALIKE} times",
            "without statements",
        ),
        at_most(_LONGEST, altered.longest, "s", "with statements: the longest batch"),
    ]
    report.notes.append(
        "Each statement is ALTER TABLE ... ADD or DROP COLUMN, each time of another table. Lanes busy: "
        "busy time of all 16 lanes together. The longest batch is the longest one seen in ten looks a "
        "second. In the end, every statement is applied."
    )
    return report


def _measure(context: Context, pace: _Pace, every: float) -> _Found:
    topic = TopicTarget(context.bootstrap, f"spark-statements-{time.time_ns()}")
    target = _Altering(topic, pace.tables, every)
    feed = SteadyFeed(Load(pace.tables), target, pace.rate)
    with (
        tempfile.TemporaryDirectory(prefix="binlane-spark-") as temporary,
        binlane(
            bootstrap=context.bootstrap,
            topic=topic.topic,
            folder=Path(temporary),
            tables=[REPLICA],
            http=True,
        ) as side,
    ):
        side.wait_until_reading()
        feed.start()
        _sleep(side, feed, pace.warm)
        looks = _Looks(side)
        before = _busy(side)
        target.is_on = True
        _sleep(side, feed, pace.seconds)
        after = _busy(side)
        longest = looks.close()
        feed.stop()
        side.wait(lambda: _is_drained(side), _DRAINED_SECONDS, "follow the statements")
        side.stop()
    return _Found(after[0] - before[0], after[1] - before[1], longest, target.statements)


def _sleep(side: Side, feed: SteadyFeed, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        side.check()
        feed.check()
        time.sleep(min(0.5, left))


def _busy(side: Side) -> tuple[int, float]:
    """Return the finished batches, and the seconds that lanes were busy."""
    lanes = (side.status() or {})["lanes"]
    return sum(lane["batches"]["finished"] for lane in lanes), sum(lane["busy_seconds"] for lane in lanes)


def _is_drained(side: Side) -> bool:
    """Return whether the worker has read everything, and no rows or statements wait for Spark."""
    status = side.status() or {}
    tables = [table for each in status["handlers"] for table in each["tables"]]
    return not any(table["waiting_rows"] or table["views_wait"] for table in tables) and all(
        each["unread"] == 0 and not each["unfinished"] for each in status["partitions"]
    )


class _Looks:
    """A thread that looks at the lanes, ten times a second."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._longest = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="looks", daemon=True)
        self._thread.start()

    def close(self) -> float:
        """Stop, and return the longest batch seen, in seconds."""
        self._stopping.set()
        self._thread.join()
        return self._longest

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            with suppress(httpx.HTTPError):
                lanes = (self._side.status() or {})["lanes"]
                self._longest = max([self._longest, *(lane.get("running_seconds") or 0.0 for lane in lanes)])
