"""`binlane broker` and `binlane demo`: a real single-node Kafka in the foreground, and a demo with one."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import typer
from confluent_kafka import KafkaException

from handlers.spark.runtime.jars import JarsError
from handlers.spark.runtime.versions import JavaError
from worker.local.broker import Broker, BrokerError
from worker.observing import logs

_LOOK_SECONDS = 0.5


def broker(directory: Path | None = None, port: int | None = None) -> None:
    """Run a real single-node Kafka for development, until Ctrl-C or SIGTERM.

    `directory` keeps the data between runs; default: a temporary folder. `port`: default: any free port."""
    logs.configure()
    _interrupt_at_signals()
    try:
        with Broker(directory, port) as node:
            typer.echo(f"Kafka is ready at {node.bootstrap_servers} (data in {node.directory})")
            typer.echo("Ctrl-C or SIGTERM stops it.")
            _watch(node)
    except KeyboardInterrupt:
        typer.echo("Kafka has stopped.")
    except (BrokerError, JarsError, JavaError) as fault:
        typer.echo(f"binlane broker: {fault}", err=True)
        raise typer.Exit(1) from None


def _interrupt_at_signals() -> None:
    # Both are set explicitly, because a shell's background job starts with SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


def _watch(node: Broker) -> None:
    """Wait until KeyboardInterrupt at a signal, or raise BrokerError if Kafka ends by itself."""
    while node.running:
        time.sleep(_LOOK_SECONDS)
    raise BrokerError(f"Kafka stopped unexpectedly: {node.telling_log_lines()}")


def demo(directory: Path | None, changes: int, seed: int, keep: bool) -> int:
    """Play a small shop through Kafka and the worker into Spark, and compare the replica with the source.

    All files are written to `directory` (new or empty), which stays. Without it, they go to a temporary
    folder. That is removed at the end, unless `keep` is set or something failed.

    Returns 0 if replica and source are equal, else 1; 2 for an unusable
    directory, 130 at a signal."""
    # These need the extra `spark`. `broker` does not.
    from worker.demo.run import run_demo  # noqa: PLC0415 (see above)
    from worker.demo.screen import Screen  # noqa: PLC0415 (see above)
    from worker.demo.worker_process import WorkerFailed  # noqa: PLC0415 (see above)

    logs.configure("warning")
    if directory is not None and directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        print(f"binlane demo: {directory} is not an empty folder: name a new one", file=sys.stderr)
        return 2
    _interrupt_at_signals()
    folder = Path(tempfile.mkdtemp(prefix="binlane-demo-")) if directory is None else directory.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    screen = Screen()
    screen.title("binlane demo", "a shop's binlog → Kafka → lanes, in order per table → Delta tables → Spark")
    code = 1
    try:
        code = 0 if run_demo(screen, folder, changes=changes, seed=seed) else 1
    except KeyboardInterrupt:
        code = 130
        print("binlane demo: stopped", file=sys.stderr)
    except (BrokerError, JarsError, JavaError, WorkerFailed, RuntimeError) as error:
        print(f"binlane demo: {error}", file=sys.stderr)
    except KafkaException as error:
        print(f"binlane demo: {error.args[0].str()}", file=sys.stderr)
    if directory is None and not keep and code in (0, 130):
        shutil.rmtree(folder, ignore_errors=True)
        screen.console.print(
            "Its tables, configuration and log were in a temporary folder, now removed: --keep keeps it."
        )
    else:
        screen.console.print(f"Tables, configuration and the worker's log: {folder}", soft_wrap=True)
    return code
