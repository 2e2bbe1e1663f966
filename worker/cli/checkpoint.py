"""`binlane checkpoint`: positions of workers."""

from __future__ import annotations

from typing import Annotated

import typer

from worker.cli.arguments import AsJson, Config, call, time_of

__all__ = ["checkpoint"]

checkpoint = typer.Typer(help="Look at the positions of a worker, or move them while it is stopped.")


@checkpoint.command("show")
def checkpoint_show(config: Config, as_json: AsJson = False) -> int | None:
    """Show every store's position for each partition, and where a start would begin and why."""
    return call("checkpoint:show", config, as_json)


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
            help="Begin at the first record of this time (Kafka's time of it) or later; without a zone: UTC.",
        ),
    ] = None,
) -> int | None:
    """Move a stopped worker's position, in every store."""
    if (offset is None) == (time is None):
        raise typer.BadParameter("give either --offset or --time")
    return call("checkpoint:move", config, topic, partition, offset, None if time is None else time_of(time))
