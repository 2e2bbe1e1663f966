"""`binlane checkpoint`: positions of workers."""

from __future__ import annotations

from typing import Annotated

import typer

from worker.cli.arguments import AsJson, Config, call, time_of

checkpoint = typer.Typer(help="Show a worker's positions, or move them while the worker is stopped.")


@checkpoint.command("show")
def checkpoint_show(
    config: Config,
    as_json: AsJson = False,
    history: Annotated[
        bool, typer.Option("--history", help="Also list each partition's last positions (journal).")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Positions per partition.")] = 20,
) -> int | None:
    """Show every store's position for each partition, and where a start would begin and why."""
    return call("checkpoint:show", config, as_json, limit if history else 0)


@checkpoint.command("set")
def checkpoint_set(
    config: Config,
    topic: Annotated[str, typer.Option("--topic", help="The topic.")],
    partition: Annotated[int, typer.Option("--partition", min=0, help="The partition.")],
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="The next offset to read.")] = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="ISO8601",
            help="Start at this time: by source time if the journal has it, otherwise by Kafka's timestamps. "
            "Default zone: UTC.",
        ),
    ] = None,
) -> int | None:
    """Move a stopped worker's position, in every store."""
    if (offset is None) == (time is None):
        raise typer.BadParameter("give either --offset or --time")
    return call("checkpoint:move", config, topic, partition, offset, None if time is None else time_of(time))


@checkpoint.command("copy")
def checkpoint_copy(
    config: Config,
    to: Annotated[
        str, typer.Option("--to", metavar="STORE", help="The target: kafka, a folder, or a database URL.")
    ],
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="STORE", help="The origin. Default: the configuration's store."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Overwrite different positions in the target.")
    ] = False,
) -> int | None:
    """Copy a stopped group's checkpoints from one store to another."""
    return call("checkpoint:copy", config, to, source, replace)
