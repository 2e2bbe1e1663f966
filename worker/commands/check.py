"""`binlane check`: check a configuration, show where tables go, and test connections."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from handlers import Handler
from handlers.loading.registry import BUILT_IN, create, resolve
from handlers.options.values import format_duration, format_size
from worker.commands.output import Output, begin, table_with, wide_console
from worker.commands.sampling.sample import show_samples
from worker.configuration import Configuration, TableRule
from worker.configuration.doubts import doubts
from worker.kafka.connection import reach_handlers, reach_kafka, reach_registry
from worker.observing import logs
from worker.partitions.own_store import reach_store
from worker.running.handler_set import OPENING_SECONDS
from worker.running.open_handlers import waitable
from worker.running.process import grace_seconds, stop_seconds


def check(config: Path, connect: bool = False, sample: Path | None = None) -> int:
    """Print which pattern leads to which handlers. With `connect`, also connect to Kafka, the checkpoint
    database and the handlers' targets. With `sample`, also show how the records in that file are handled.

    Returns 0, or 1 if a connection failed, a record was not decoded, or no record matches a rule.

    Raises ConfigurationError: the configuration, or the file of records, cannot be used."""
    logs.configure("warning")  # keeps other messages out of the output
    configuration, output = begin("check", config, level="warning")
    console = wide_console()
    console.print(Text(f"{config}: usable"))
    console.print(_table(configuration, output))
    for sentence in doubts(configuration):
        console.print(Text(output.clean(f"Note: {sentence}")), soft_wrap=True)
    console.print(Text(_times(configuration)), soft_wrap=True)
    shown = show_samples(configuration, sample, console, output) if sample is not None else 0
    return max(shown, _connect(configuration, console, output) if connect else 0)


def _times(configuration: Configuration) -> str:
    """Format how long a deployment must wait for a start and a stop."""
    folder = configuration.folder
    entries = [entry for rule in configuration.tables for entry in rule.handlers]
    # Foreign code is not run for this, so values that such a handler object sets itself are unknown.
    closing = [
        (create(entry, folder) if entry.type in BUILT_IN else resolve(entry.type, folder)).close_timeout
        for entry in entries
    ]
    stop = stop_seconds(
        shutdown_timeout=configuration.shutdown_timeout,
        revoke_timeout=configuration.revoke_timeout,
        closing=max(each if waitable(each) else Handler.close_timeout for each in closing),
    )
    start = configuration.start_timeout + OPENING_SECONDS
    stop = grace_seconds(stop)
    return (
        f"A deployment has to give a start {start:g} s and a stop {stop:g} s (startup probe, grace period)."
    )


def _table(configuration: Configuration, output: Output) -> Table:
    table = table_with(
        ("match", "handlers", "batch", "attempts", "on failure"),
        caption="The first match wins; other tables are skipped.",
        caption_justify="left",
    )
    for rule in configuration.tables:
        attempts = rule.retry.max_attempts
        # Text, because rich would read a pattern such as [a-z] as markup.
        cells = (
            rule.match,
            _handlers(rule),
            _batch(rule),
            "for ever" if attempts is None else str(attempts),
            rule.on_failure,
        )
        table.add_row(*(Text(output.clean(cell, lines=True)) for cell in cells))
    return table


def _handlers(rule: TableRule) -> str:
    return "\n".join(
        entry.name if entry.name == entry.type else f"{entry.name} ({entry.type})" for entry in rule.handlers
    )


def _batch(rule: TableRule) -> str:
    batch = rule.batch
    return f"{batch.max_records} records, {format_size(batch.max_bytes)}, {format_duration(batch.max_wait)}"


def _connect(configuration: Configuration, console: Console, output: Output) -> int:
    failed = False
    for answers in (
        reach_kafka(configuration),
        reach_registry(configuration),
        reach_store(configuration),
        reach_handlers(configuration),
    ):
        for answer in answers:
            if answer.error is None:
                detail = f": {answer.detail}" if answer.detail else ""
                console.print(Text(output.clean(f"{answer.target}: reached{detail}")), soft_wrap=True)
            else:
                failed = True
                output.say(f"{answer.target}: {answer.error}")
    return 1 if failed else 0
