"""`binlane dead-letters`: records that were set aside."""

from __future__ import annotations

from typing import Annotated

import typer

from worker.cli.arguments import AsJson, Config, call, time_of

dead_letters = typer.Typer(help="Read the dead-letter topic, or send its records back.")


@dead_letters.command("list")
def dead_letters_list(
    config: Config,
    table: Annotated[str | None, typer.Option("--table", help="Only those of this database.table.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="ISO8601",
            help="Only those written then or later; without a zone: UTC.",
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only so many of the newest.")] = None,
    as_json: AsJson = False,
) -> int | None:
    """List dead letters, oldest first, and whether each was replayed."""
    moment = None if since is None else time_of(since, "--since")
    return call("dead_letters:list_letters", config, table, moment, limit, as_json)


@dead_letters.command("show")
def dead_letters_show(
    config: Config,
    place: Annotated[str, typer.Argument(metavar="PLACE", help="partition:offset of the letter, as 0:17.")],
) -> int | None:
    """Show one dead letter: its headers, key, value, and changes."""
    return call("dead_letters:show", config, place)


@dead_letters.command("replay")
def dead_letters_replay(
    config: Config,
    places: Annotated[
        list[str] | None, typer.Argument(metavar="[PLACE]...", help="partition:offset of letters, as 0:17.")
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All that were not replayed yet.")] = False,
    table: Annotated[
        str | None, typer.Option("--table", help="Those of this database.table that were not replayed yet.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> int | None:
    """Send dead letters back through their table's handlers, in this process."""
    if (places is not None) + everything + (table is not None) != 1:
        raise typer.BadParameter("give either --all, or --table, or the places of letters such as 0:17")
    return call("dead_letters:replay", config, places, table, dry_run, yes)
