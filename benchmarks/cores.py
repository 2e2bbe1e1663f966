"""Threads alone, and with two child processes (`lanes.processes`), in turns, and the peers behind them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from benchmarks.context import Context
from benchmarks.peers import DECATON, PARALLEL_CONSUMER, Peer
from benchmarks.processes import BenchmarkError
from benchmarks.results import Report, at_least, at_most
from benchmarks.servers import PostgresServer
from benchmarks.topics import TopicSpec
from benchmarks.worker_run import Outcome, running_worker

__all__ = ["run"]

_LIMIT = 300.0
_ROUNDS = 3
_CHILD_MIB = 80
_START = 1.3


@dataclass(frozen=True)
class _Load:
    name: str
    goal: float
    """Times the rate of threads."""
    handler: str
    records: tuple[int, int]
    """Records, also those of a quick run."""
    options: Mapping[str, Any]
    tables: int = 10
    lanes: int = 16
    order_by: str = "table"
    peers: Mapping[str, object] | None = None
    """Options of the peers that do the same. None: they have no such handler."""
    ahead: Mapping[Peer, float] = field(default_factory=dict)
    """Peer -> goal, times its rate."""


_LOADS = (
    _Load(
        "rows read whole",
        1.4,
        "Reading",
        (1_000_000, 20_000),
        {},
        peers={"parse": 1},
        ahead={DECATON: 1.0, PARALLEL_CONSUMER: 4.0},
    ),
    _Load("100 us of Python a row", 1.8, "Working", (60_000, 2_000), {"micros": 100}),
    _Load("100 us, one table, by row", 1.6, "Working", (60_000, 2_000), {"micros": 100}, 1, order_by="row"),
    _Load(
        "1 ms of sleep a row",
        0.95,
        "Sleeping",
        (200_000, 5_000),
        {"sleep": 1},
        1_000,
        100,
        peers={"sleep": 1, "check": 1},
    ),
    _Load("`sql` into PostgreSQL", 1.3, "Storing", (200_000, 2_000), {}),
)


def run(context: Context) -> Report:
    """One partition, because a binlog's topic usually has one."""
    report = Report(
        "cores",
        "Child processes: one partition, 10 tables (1 ms of sleep: 1,000), 16 lanes (100); best of "
        f"{_ROUNDS} turns",
        {
            "handler": "Handler",
            "processes": "lanes.processes",
            "rate": "Records/s",
            "times": "Times threads",
            "start": "First record after s",
            "cores": "Cores used",
            "worker_us": "CPU in the worker, us a record",
            "all_us": "CPU in all, us a record",
            "rss": "Peak MiB, worker + largest child",
        },
    )
    context.say("starting PostgreSQL")
    with closing(PostgresServer()) as postgres:
        postgres.start()
        outcomes = [(load, *_turns(context, load, postgres)) for load in _LOADS]
    for load, threads, processes in outcomes:
        for number, outcome in ((0, threads), (2, processes)):
            _report(report, load, number, outcome, threads)
        times = processes.rate / threads.rate
        report.goals.append(at_least(load.goal, times, "times threads", load.name))
        _add_peers(context, report, load, processes.rate)
    _, threads, processes = outcomes[0]
    child = processes.child_rss_kib / 1024
    report.goals.append(at_most(_CHILD_MIB, child, "MiB", "memory of a child, rows read whole"))
    times = processes.start_seconds / threads.start_seconds
    report.goals.append(at_most(_START, times, "times threads", "the first record after the start"))
    report.notes.append(
        "CPU is that of whole processes, with their start. The handler of 100 us uses as much time of its "
        "thread's CPU for each row, in Python. The PostgreSQL server shares the machine."
    )
    report.notes += [*(_projected(*each) for each in outcomes), *context.peers.notes()]
    return report


def _turns(context: Context, load: _Load, postgres: PostgresServer) -> tuple[Outcome, Outcome]:
    """Return the best run of threads and the best one of processes."""
    records = context.pick(*load.records)
    topic = context.topic(TopicSpec(records, load.tables))
    best: dict[int, Outcome] = {}
    for turn in range(_ROUNDS):  # in turns, because other processes may slow down any moment
        for processes in (0, 2):
            context.say(f"{load.name}: {processes} processes")
            options = dict(load.options)
            if load.handler == "Storing":
                options["url"] = postgres.new_database(f"turn_{turn}_{processes}")
            with running_worker(
                bootstrap=context.bootstrap,
                topic=topic,
                handler=load.handler,
                options=options,
                lanes={"count": load.lanes, "processes": processes, "order_by": load.order_by},
            ) as worker:
                outcome = worker.wait_for(records, _LIMIT)
                if not outcome.ok or outcome.totals.out_of_order or outcome.totals.overlaps:
                    tail = worker.log_tail()
                    raise BenchmarkError(f"{load.name}: not complete and in order: {outcome}\n{tail}")
            if processes not in best or outcome.rate > best[processes].rate:
                best[processes] = outcome
    return best[0], best[2]


def _report(report: Report, load: _Load, processes: int, outcome: Outcome, threads: Outcome) -> None:
    report.row(
        handler=load.name,
        processes=processes,
        rate=outcome.rate,
        times=outcome.rate / threads.rate,
        start=outcome.start_seconds,
        cores=outcome.all_cpu_seconds / max(outcome.wall_seconds, 1e-9),
        worker_us=outcome.cpu_seconds / outcome.records * 1e6,
        all_us=outcome.all_cpu_seconds / outcome.records * 1e6,
        rss=f"{outcome.rss_kib >> 10} + {outcome.child_rss_kib >> 10}",
        seconds=outcome.seconds,
        cpu=outcome.cpu_seconds,
        all_cpu=outcome.all_cpu_seconds,
    )


def _add_peers(context: Context, report: Report, load: _Load, rate: float) -> None:
    """Run the peers that can do this, once each. `rate`: of two processes."""
    for peer in context.peers.available if load.peers is not None else ():
        context.say(f"{load.name}: {peer.name}")
        records = context.pick(*load.records)
        theirs = context.peers.run(
            peer,
            bootstrap=context.bootstrap,
            topic=context.topic(TopicSpec(records, load.tables)),
            limit=_LIMIT,
            records=records,
            threads=load.lanes,
            **load.peers or {},
        )
        report.row(
            handler=load.name,
            processes=peer.name,
            rate=theirs.rate,
            all_us=theirs.cpu_seconds / max(theirs.records, 1) * 1e6,
            rss=theirs.rss_kib >> 10,
            cores=(theirs.cpu_seconds - theirs.cpu_at_first) / max(theirs.seconds, 1e-9),
        )
        if goal := load.ahead.get(peer):
            text = f"{load.name}: {goal:g} times" if goal != 1 else f"{load.name}: as fast"
            report.goals.append(at_least(goal * theirs.rate, rate, "records/s", text, peer.name))


def _projected(load: _Load, threads: Outcome, processes: Outcome) -> str:
    """Say what more cores would bring, from the CPU seconds of a record after the start."""
    worker = max(1e-9, processes.cpu_seconds - threads.cpu_at_first) / processes.records
    whole = worker + (processes.all_cpu_seconds - processes.cpu_seconds) / processes.records
    rates = " and ".join(f"{min(1 / worker, cores / whole):,.0f} with {cores}" for cores in (8, 32))
    return (
        f"{load.name}, projected: {rates} cores. One core of the worker's own process is the bound from "
        f"{whole / worker:.1f} cores on."
    )
