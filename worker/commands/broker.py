"""`binlane broker`: a real single-node Kafka in the foreground."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import typer

from handlers.spark.runtime.jars import JarsError
from handlers.spark.runtime.versions import JavaError
from worker.local.broker import Broker, BrokerError
from worker.observing import logs

_LOOK_SECONDS = 0.5


def broker(directory: Path | None = None, port: int | None = None) -> None:
    """Run a real single-node Kafka for development, until Ctrl-C or SIGTERM.

    `directory` keeps the data between runs; default: a temporary folder. `port`: default: any free port."""
    logs.configure()
    # Both are set explicitly, because a shell's background job starts with SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
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


def _watch(node: Broker) -> None:
    """Wait until KeyboardInterrupt at a signal, or raise BrokerError if Kafka ends by itself."""
    while node.running:
        time.sleep(_LOOK_SECONDS)
    raise BrokerError(f"Kafka stopped unexpectedly: {node.telling_log_lines()}")
