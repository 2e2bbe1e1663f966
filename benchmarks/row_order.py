"""Lanes at work for one hot table with rows of 1 ms, with order by row and by table."""

from __future__ import annotations

import time
from typing import cast

from confluent_kafka import Message

from benchmarks.context import Context
from benchmarks.processes import BenchmarkError
from benchmarks.results import Report, at_least
from benchmarks.topics import TopicSpec, canal_value
from benchmarks.worker_run import Outcome, running_worker
from handlers import Change
from handlers.rows import shard_of
from worker.formats.interface import Record
from worker.formats.registry import get

__all__ = ["run"]

_LANES = 16
_BUSY = 12
_LIMIT = 120.0


def run(context: Context) -> Report:
    """Handle records of one table, in both orders."""
    report = Report(
        "row_order",
        f"Order by row and by table: one hot table, 1 ms a row, {_LANES} lanes",
        {
            "order": "Order by",
            "records": "Records",
            "rate": "Records/s",
            "busy": "Lanes at work",
            "cpu": "CPU s",
            "rss": "Peak RSS MiB",
        },
    )
    for order, records in (("table", context.pick(5_000, 500)), ("row", context.pick(60_000, 5_000))):
        topic = context.topic(TopicSpec(records, 1))
        context.say(f"order by {order}")
        outcome = _binlane(context, topic, records, order)
        busy = outcome.totals.slept_seconds / outcome.totals.seconds
        report.row(
            order=order,
            records=records,
            rate=outcome.rate,
            busy=busy,
            cpu=outcome.cpu_seconds,
            rss=outcome.rss_kib / 1024,
        )
        if order == "row":
            report.goals.append(at_least(_BUSY, busy, "lanes", f"lanes at work, of {_LANES}"))
    report.notes += [
        "Lanes at work: the time that all handlers slept, divided by the time from the first record to the "
        "last. This includes the first moments of a cold process. Each shard kept its order, one batch at "
        "a time.",
        _cost(context.pick(50_000, 2_000)),
    ]
    return report


def _binlane(context: Context, topic: str, records: int, order: str) -> Outcome:
    with running_worker(
        bootstrap=context.bootstrap,
        topic=topic,
        handler="Sleeping",
        options={"sleep": 1},
        lanes={"count": _LANES, "order_by": order},
    ) as worker:
        outcome = worker.wait_for(records, _LIMIT)
    totals = outcome.totals
    if not outcome.ok or totals.out_of_order or totals.overlaps:
        raise BenchmarkError(f"order by {order}: not complete and in order: {outcome}\n{worker.log_tail()}")
    return outcome


def _cost(count: int) -> str:
    """Return a note: the cost of finding a row's shard, compared with decoding the row."""
    message = cast(Record, Message(topic="bench", partition=0, offset=7, value=canal_value(7, 0, 7)))
    changes: list[Change] = []
    decode = get("canal").decode
    begin = time.perf_counter()
    for _ in range(count):
        decode(message, changes)
    decoded = time.perf_counter()
    for change in changes:
        shard_of(change)
    ended = time.perf_counter()
    return (
        f"Decoding a row takes {(decoded - begin) / count * 1e6:.2f} us. "
        f"Finding its shard takes {(ended - decoded) / count * 1e6:.2f} us."
    )
