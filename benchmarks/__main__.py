"""`python -m benchmarks [NAME ...]`: measure binlane beside its peers on a real broker."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer
from confluent_kafka import KafkaException
from rich.console import Console

from benchmarks import (
    backlog,
    columns,
    cores,
    crash,
    debezium_rates,
    decode,
    first_run,
    journal,
    key_table,
    no_work,
    row_order,
    sleeping,
    sql,
    standing,
    stuck,
    tracker,
    waiting,
)
from benchmarks.context import Context
from benchmarks.peers import Peers
from benchmarks.processes import BenchmarkError
from benchmarks.results import Report, show, write
from benchmarks.servers import ServerError
from benchmarks.spark import append as spark_changelog
from benchmarks.spark import backlog as spark_backlog
from benchmarks.spark import declarative as auto_cdc
from benchmarks.spark import exactness as auto_cdc_rows
from benchmarks.spark import fresh as spark_freshness
from benchmarks.spark import many_tables as tables_10k
from benchmarks.spark import memory as spark_memory
from benchmarks.spark import restart as spark_crash
from benchmarks.spark import slow_table as spark_slow_table
from benchmarks.spark import start as spark_start
from benchmarks.spark import statements as spark_statements
from benchmarks.spark import views as spark_views
from handlers.spark.runtime.jars import JarsError
from handlers.spark.runtime.versions import JavaError
from worker.local.broker import Broker, BrokerError

_BENCHMARKS: dict[str, Callable[[Context], Report]] = {
    "tracker": tracker.run,
    "journal": journal.run,
    "decode": decode.run,
    "columns": columns.run,
    "key_table": key_table.run,
    "sleeping": sleeping.run,
    "waiting": waiting.run,
    "row_order": row_order.run,
    "cores": cores.run,
    "sql": sql.run,
    "crash": crash.run,
    "backlog": backlog.run,
    "no_work": no_work.run,
    "stuck": stuck.run,
    "standing": standing.run,
    "spark_backlog": spark_backlog.run,
    "spark_freshness": spark_freshness.run,
    "spark_slow_table": spark_slow_table.run,
    "spark_crash": spark_crash.run,
    "spark_changelog": spark_changelog.run,
    "spark_memory": spark_memory.run,
    "spark_start": spark_start.run,
    "spark_views": spark_views.run,
    "spark_statements": spark_statements.run,
    "debezium_rates": debezium_rates.run,
    "auto_cdc": auto_cdc.run,
    "auto_cdc_rows": auto_cdc_rows.run,
    "tables_10k": tables_10k.run,
    "first_run": first_run.run,
}
_RESULTS = Path(__file__).with_name("results")
_FAULTS = (BenchmarkError, BrokerError, JarsError, JavaError, KafkaException, ServerError)


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help=f"Which to run (default: all): {', '.join(_BENCHMARKS)}.")
    ] = None,
    *,
    json: Annotated[Path, typer.Option(help="The folder for NAME.json.")] = _RESULTS,
    quick: Annotated[bool, typer.Option("--quick", help="Small numbers: does everything run?")] = False,
    peers: Annotated[bool, typer.Option(help="Measure the JVM peers in the same run.")] = True,
    plots: Annotated[Path | None, typer.Option(help="The folder for plots; needs the extra `plots`.")] = None,
    broker_directory: Annotated[
        Path | None, typer.Option(help="Keep the broker and its topics here for later runs.")
    ] = None,
) -> None:
    """Run benchmarks, print their tables and write them as JSON. Exit code 1: a benchmark failed to run."""
    console = Console()
    unknown = [name for name in names or [] if name not in _BENCHMARKS]
    if unknown:
        console.print(f"no benchmark {', '.join(unknown)}; there are: {', '.join(_BENCHMARKS)}")
        raise typer.Exit(2)
    signal.signal(signal.SIGTERM, _interrupt)
    failed = []
    with ExitStack() as stack:

        def start_broker() -> str:
            return stack.enter_context(Broker(broker_directory)).bootstrap_servers

        context = Context(console, quick, start_broker, lambda: Peers(wanted=peers), peers, plots)
        for name in names or _BENCHMARKS:
            console.print(f"[bold]{name}[/]")
            try:
                report = _BENCHMARKS[name](context)
            except _FAULTS as fault:
                failed.append(name)
                console.print(f"{name} could not be run: {fault}", style="red", markup=False)
                continue
            show(report, console)
            console.print(f"  written to {write(report, json, quick=quick)}", style="dim")
    if failed:
        console.print(f"could not be run: {', '.join(failed)}", style="red")
        raise typer.Exit(1)


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    """End every started process on SIGTERM, as on Ctrl-C."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.argv[0] = "python -m benchmarks"
    typer.run(main)
