"""Threads alone, and with two child processes (`lanes.processes`): the same records, in turns."""

from __future__ import annotations

from benchmarks.context import Context
from benchmarks.processes import BenchmarkError
from benchmarks.results import Report, at_least
from benchmarks.topics import TopicSpec
from benchmarks.worker_run import Outcome, running_worker

__all__ = ["run"]

_LIMIT = 300.0
_TABLES = 10
_ROUNDS = 3


def run(context: Context) -> Report:
    """One partition, because a binlog's topic usually has one."""
    report = Report(
        "cores",
        f"Child processes: one partition, {_TABLES} tables (1 ms of sleep: 1,000), 16 lanes (100); best of "
        f"{_ROUNDS} turns",
        {
            "handler": "Handler",
            "processes": "lanes.processes",
            "rate": "Records/s",
            "times": "Times threads",
            "cores": "Cores used",
            "worker_us": "CPU in the worker, us a record",
            "rss": "Peak MiB, worker + largest child",
        },
    )
    for name, goal, handler, options, records, tables, lanes in (
        ("rows read whole", 1.4, "Reading", {}, context.pick(1_000_000, 20_000), _TABLES, 16),
        ("100 us of Python a row", 1.8, "Working", {"micros": 100}, context.pick(60_000, 2_000), _TABLES, 16),
        ("1 ms of sleep a row", 0.95, "Sleeping", {"sleep": 1}, context.pick(200_000, 5_000), 1_000, 100),
    ):
        topic = context.topic(TopicSpec(records, tables))
        best: dict[int, Outcome] = {}
        for _ in range(_ROUNDS):  # in turns, because other processes may slow down any moment
            for processes in (0, 2):
                context.say(f"{name}: {processes} processes")
                with running_worker(
                    bootstrap=context.bootstrap,
                    topic=topic,
                    handler=handler,
                    options=options,
                    lanes={"count": lanes, "processes": processes},
                ) as worker:
                    outcome = worker.wait_for(records, _LIMIT)
                    if not outcome.ok or outcome.totals.out_of_order or outcome.totals.overlaps:
                        raise BenchmarkError(
                            f"{name}: not complete and in order: {outcome}\n{worker.log_tail()}"
                        )
                if processes not in best or outcome.rate > best[processes].rate:
                    best[processes] = outcome
        threads = best[0]
        for processes, outcome in best.items():
            report.row(
                handler=name,
                processes=processes,
                rate=outcome.rate,
                times=outcome.rate / threads.rate,
                cores=outcome.all_cpu_seconds / max(outcome.wall_seconds, 1e-9),
                worker_us=outcome.cpu_seconds / records * 1e6,
                rss=f"{outcome.rss_kib >> 10} + {outcome.child_rss_kib >> 10}",
                seconds=outcome.seconds,
                cpu=outcome.cpu_seconds,
                all_cpu=outcome.all_cpu_seconds,
            )
        report.goals.append(at_least(goal, best[2].rate / threads.rate, "times threads", name))
    report.notes.append(
        "CPU is that of whole processes, with their start. The handler of 100 us uses as much time of its "
        "thread's CPU for each row, in Python."
    )
    return report
