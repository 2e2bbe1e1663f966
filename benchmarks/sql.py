"""Rows per second into PostgreSQL, by the `sql` handler and by two other ways."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing

import sqlalchemy as sa

from benchmarks.context import Context
from benchmarks.processes import BenchmarkError
from benchmarks.results import Report, at_least
from benchmarks.servers import PostgresServer
from benchmarks.sql_rows import DATABASE, WORKLOADS, changes, preloaded
from benchmarks.sql_writers import CopyAndUpsert, ExecuteMany, Handling, Writer
from handlers import Change

__all__ = ["run"]

_SHARE = 0.7
_BATCHES = (1_000, 5_000)
_SEED_TABLE = "preloaded"

Batches = Sequence[Sequence[Change]]


def run(context: Context) -> Report:
    """Write the same batches with each writer in turn. The tables must be equal afterwards."""
    count = context.pick(50_000, 5_000)
    there = context.pick(20_000, 2_000)
    rounds = context.pick(5, 2)
    report = Report(
        "sql",
        f"The sql handler into PostgreSQL: {count:,} changes of a table with 10 columns, one thread",
        {
            "workload": "Changes",
            "batch": "Batch",
            "writer": "Writer",
            "rate": "Changes/s",
            "share": "Share of the fastest peer",
        },
    )
    with ExitStack() as stack:
        context.say("starting PostgreSQL")
        lab = stack.enter_context(closing(_Lab(preloaded(there))))
        for workload in WORKLOADS:
            made = changes(workload, count, there=there)
            for size in _BATCHES:
                context.say(f"{workload}, batches of {size:,}")
                batches = [made[start : start + size] for start in range(0, count, size)]
                _report(report, workload, size, lab.rates(batches, rounds))
    report.notes.append(
        f"The figures add up the fastest of {rounds} rounds of each batch. The writers took turns, with one "
        f"commit a batch. The table had {there:,} rows before. After each round the writers' tables were "
        "equal. COPY is binary. The handler's transactions also store the marks with which it applies each "
        "change once. The server shares the machine and does not wait for its disk (fsync off)."
    )
    return report


def _report(report: Report, workload: str, size: int, rates: dict[str, float]) -> None:
    peers = {name: rate for name, rate in rates.items() if name != Handling.name}
    fastest = max(peers, key=peers.__getitem__)
    for name, rate in rates.items():
        report.row(workload=workload, batch=size, writer=name, rate=rate, share=rate / peers[fastest])
    report.goals.append(
        at_least(
            _SHARE * peers[fastest],
            rates[Handling.name],
            "changes/s",
            f"{workload}, batches of {size:,}: {_SHARE} of the fastest",
            fastest,
        )
    )


class _Lab:
    """A server, and the writers, each with its own table."""

    def __init__(self, seed: Sequence[Change]) -> None:
        """Raises ServerError."""
        with ExitStack() as stack:
            server = stack.enter_context(closing(PostgresServer()))
            server.start()
            self._engine = sa.create_engine(server.url)
            stack.callback(self._engine.dispose)
            handling = stack.enter_context(closing(Handling(server.url)))
            # The handler creates its table. The other writers' tables are copies.
            handling.apply(seed)
            self._run(f"CREATE TABLE {DATABASE}.{_SEED_TABLE} AS TABLE {DATABASE}.{Handling.table}")
            self._writers: list[Writer] = [handling]
            for peer in (ExecuteMany, CopyAndUpsert):
                like = f"(LIKE {DATABASE}.{Handling.table} INCLUDING ALL)"
                self._run(f"CREATE TABLE {DATABASE}.{peer.table} {like}")
                self._writers.append(stack.enter_context(closing(peer(server.url))))
            self._stack = stack.pop_all()

    def close(self) -> None:
        self._stack.close()

    def rates(self, batches: Batches, rounds: int) -> dict[str, float]:
        """Return writer -> changes/s, after a warm-up round. Raises BenchmarkError."""
        best = {writer.name: [float("inf")] * len(batches) for writer in self._writers}
        for round_ in range(rounds + 1):
            for writer in self._writers:
                self._fill(writer)
                seconds = _seconds(writer.apply, batches)
                if round_:
                    best[writer.name] = list(map(min, best[writer.name], seconds))
            self._compare()
        count = sum(map(len, batches))
        return {name: count / sum(seconds) for name, seconds in best.items()}

    def _fill(self, writer: Writer) -> None:
        table = f"{DATABASE}.{writer.table}"
        self._run(
            f"TRUNCATE {table}, binlane_marks",
            f"INSERT INTO {table} TABLE {DATABASE}.{_SEED_TABLE}",
            "CHECKPOINT",
        )

    def _compare(self) -> None:
        first, *others = (f"{DATABASE}.{writer.table}" for writer in self._writers)
        with self._engine.connect() as connection:
            for other in others:
                for one, two in ((first, other), (other, first)):
                    query = f"SELECT count(*) FROM (TABLE {one} EXCEPT TABLE {two}) AS found"
                    different = connection.exec_driver_sql(query).scalar_one()
                    if different:
                        raise BenchmarkError(f"{one} has {different} rows that {two} has not")

    def _run(self, *statements: str) -> None:
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)


def _seconds(apply: Callable[[Sequence[Change]], None], batches: Batches) -> list[float]:
    """Return the seconds of each batch."""
    seconds = []
    gc.collect()
    gc.disable()
    for batch in batches:
        begin = time.perf_counter()
        apply(batch)
        seconds.append(time.perf_counter() - begin)
    gc.enable()
    return seconds
