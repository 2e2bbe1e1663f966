"""`binlane dead-letters`: records that were set aside."""

from __future__ import annotations

from typing import Annotated

import typer

from worker.cli.arguments import AsJson, Config, call, time_of

dead_letters = typer.Typer(help="List, show or replay dead letters.")


@dead_letters.command("list")
def dead_letters_list(
    config: Config,
    table: Annotated[str | None, typer.Option("--table", help="Only letters of this database.table.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="ISO8601",
            help="Only letters from this time on. Default zone: UTC.",
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Number of newest letters.")] = None,
    as_json: AsJson = False,
) -> int | None:
    """List dead letters, oldest first, and whether each was replayed."""
    moment = None if since is None else time_of(since, "--since")
    return call("dead_letters:list_letters", config, table, moment, limit, as_json)


@dead_letters.command("show")
def dead_letters_show(
    config: Config,
    place: Annotated[str, typer.Argument(metavar="PLACE", help="The letter's partition:offset, as 0:17.")],
) -> int | None:
    """Show one dead letter: its headers, key, value, and changes."""
    return call("dead_letters:show", config, place)


@dead_letters.command("replay")
def dead_letters_replay(
    config: Config,
    places: Annotated[
        list[str] | None, typer.Argument(metavar="[PLACE]...", help="partition:offset, such as 0:17.")
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All letters not replayed yet.")] = False,
    table: Annotated[
        str | None, typer.Option("--table", help="All of this database.table not replayed yet.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> int | None:
    """Send dead letters back through their table's handlers, in this process."""
    if (places is not None) + everything + (table is not None) != 1:
        raise typer.BadParameter("give either --all, or --table, or the places of letters such as 0:17")
    return call("dead_letters:replay", config, places, table, dry_run, yes)
